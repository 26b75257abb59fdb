"""TODO agent."""
