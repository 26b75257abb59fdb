"""Reading what a student handed in, in a process with limits: `reader` starts it, and is it; `members` opens files."""
