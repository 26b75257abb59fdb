"""TODO link."""
