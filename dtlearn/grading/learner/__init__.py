"""TODO learner."""
