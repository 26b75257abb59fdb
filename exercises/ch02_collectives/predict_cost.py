# ch02.predict_cost: edit this file, then run `dtlearn grade ch02.predict_cost`.
"""Ring or tree? Predict what an all-reduce costs on a cluster that you do not have.

In the alpha-beta model a message of m bytes takes alpha + m / beta seconds: `alpha` is the latency
in seconds, `beta` the bandwidth of a link in bytes per second. Messages of one step run at the same
time, each on links of its own; steps follow one another.

    ring   reduce-scatter and all-gather, N - 1 steps each; a step sends 1/N of the tensor
    tree   reduce to one rank, then broadcast, log2(N) steps each, rounded up; a step sends all of it

Comes in: `num_ranks` (N, at least 2), `nbytes`, the size of the tensor, and `alpha` and `beta`.

Goes out: a dict with three numbers.
    "ring", "tree"   seconds for a tensor of `nbytes`
    "crossover"      the size in bytes at which both take the same time; above it the ring is faster.
                     0.0 if the ring is never the slower one

Example: predict_cost(4, 1000.0, alpha=1e-6, beta=1e9)
    ring 6 us + 1.5 us, tree 4 us + 4 us, crossover 800 bytes:
    {"ring": 7.5e-06, "tree": 8e-06, "crossover": 800.0}

Rule: no communication; this is arithmetic.
"""

import math


def predict_cost(num_ranks: int, nbytes: float, alpha: float, beta: float) -> dict[str, float]:
    """Seconds of an all-reduce on a ring and on a tree, and the size at which they are equal."""
    raise NotImplementedError(
        "ch02.predict_cost: count steps and bytes of both; set them equal and solve "
        "for the size"
    )
