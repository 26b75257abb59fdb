"""TODO on_rank."""
