"""Optimizer state in host memory, and updates that are computed there; `dtlearn.sharing.host_memory` is the host."""
