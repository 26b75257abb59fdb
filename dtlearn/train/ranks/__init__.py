"""What the ranks of a run do as one: `group.py`, `rank_0.py`, `stop_signals.py`. It knows nothing of the training."""
