"""Optimizer state and parameters in host memory.

`host`: memory and thread of the host, and what is copied; `optimizer`: updates that are computed there.
"""
