"""TODO judge_process."""
