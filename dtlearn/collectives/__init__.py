"""Layer 2: what ranks say to each other: the eight collectives from send and receive, and what they cost.

A plan is data, made by pure functions in any process; `execute` and `primitives` run on the ranks. In this order:
`algorithms/` has the plans and their language, `simulate.py` proves them, `execute.py` runs them, `primitives.py` has
the interface of `torch.distributed`, `cost.py` prices them on a `topology.py`, and `measure.py` times them.
"""

from .algorithms import halving_doubling, hierarchical, naive, ring, tree
from .algorithms.plan import Move, Plan, chunk_bounds
from .primitives import all_gather, all_reduce, all_to_all, barrier, broadcast, gather, reduce, reduce_scatter, scatter

__all__ = [
    "Move",
    "Plan",
    "all_gather",
    "all_reduce",
    "all_to_all",
    "barrier",
    "broadcast",
    "chunk_bounds",
    "gather",
    "halving_doubling",
    "hierarchical",
    "naive",
    "reduce",
    "reduce_scatter",
    "ring",
    "scatter",
    "tree",
]
