"""Naive model parallelism, on the ranks: each rank has a stage, the whole batch passes through, and one rank works.

`differentiable` is send and receive that autograd knows; `naive` is a model whose stages are on ranks.
"""
