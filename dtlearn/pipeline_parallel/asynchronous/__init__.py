"""Pipelines without a flush, PipeDream's idea: no bubble, and gradients of weights that have been updated since.

`stashing`: a stage that keeps the weights of each forward pass for its backward pass; `pipedream`: such stages on
ranks; `delayed`: the same mathematics in one process, for any delays.
"""
