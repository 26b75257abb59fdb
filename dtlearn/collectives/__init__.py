"""What ranks say to each other: the eight collectives from send and receive, and what they cost.

`plan.py` is the language, `naive.py`, `ring.py`, `tree.py`, `halving_doubling.py` and `hierarchical.py` the
algorithms, `execute.py` runs them, `simulate.py` proves them, `cost.py` prices them.
"""

from .plan import Move, Plan, chunk_bounds
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
    "reduce",
    "reduce_scatter",
    "scatter",
]
