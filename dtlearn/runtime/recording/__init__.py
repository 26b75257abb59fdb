"""TODO recording."""
