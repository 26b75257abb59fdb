"""TODO lab."""
