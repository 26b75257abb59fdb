"""TODO large_batch."""
