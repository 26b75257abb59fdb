"""TODO world."""
