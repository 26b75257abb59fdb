"""TODO faults."""
