"""TODO rank."""
