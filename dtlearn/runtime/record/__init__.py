"""TODO record."""
