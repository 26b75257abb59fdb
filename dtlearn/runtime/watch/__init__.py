"""TODO watch."""
