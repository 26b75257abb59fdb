"""TODO machine."""
