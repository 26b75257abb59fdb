"""TODO exercises."""
