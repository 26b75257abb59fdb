"""What each stage stores and sends, before a run: formulas over a partition, equal to what is counted in a run.

Pure functions for any process: `state_bytes`, `traffic`, `threshold`; `published`, printed figures with ours beside them.
"""
