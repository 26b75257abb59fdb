"""The commands about exercises: grade, grade-class, watch, hint, solution, reset, progress. A module per command."""
