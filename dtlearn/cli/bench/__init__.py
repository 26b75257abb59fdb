"""TODO bench."""
