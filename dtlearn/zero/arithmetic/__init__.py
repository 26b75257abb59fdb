"""The bytes that each stage stores and sends, before a run: formulas over a partition, equal to those counted.

Pure functions for any process: `state_bytes`, `traffic`, `threshold`; `published`, printed figures beside ours.
"""
