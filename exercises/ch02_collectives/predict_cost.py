# ch02.predict_cost: edit this file, then run `dtlearn grade ch02.predict_cost`.
"""Ring or tree: what does an all-reduce cost on a cluster that you do not have?

A message of m bytes takes `alpha` + m / `beta` seconds: `alpha` is the latency in seconds, `beta`
the bandwidth of a link in bytes per second. The messages of one step run at the same time, each on
its own link. Steps follow one another.

| algorithm | steps | a rank sends in each |
|---|---|---|
| ring | reduce-scatter N - 1, all-gather N - 1 | 1/N of the tensor |
| tree | reduce log2(N), broadcast log2(N), each rounded up | the whole tensor |

**Given** `num_ranks` (N, at least 2), `nbytes` (the size of the tensor), `alpha` and `beta`.

**Return** a dict with three numbers:

- `"ring"`, `"tree"`: seconds for a tensor of `nbytes`.
- `"crossover"`: the size in bytes at which both take the same time. Above it the ring is faster.
  0.0 if the ring is never the slower one.

**Example**: `predict_cost(4, 1000.0, alpha=1e-6, beta=1e9)`

| | latency | transfer | result |
|---|---|---|---|
| `"ring"` | 6 us | 1.5 us | `7.5e-06` |
| `"tree"` | 4 us | 4 us | `8e-06` |
| `"crossover"` | | | `800.0` |

**Rules**: plain arithmetic, no communication.
"""

import math


def predict_cost(num_ranks: int, nbytes: float, alpha: float, beta: float) -> dict[str, float]:
    """Seconds of an all-reduce on a ring and on a tree, and the size at which they are equal."""
    raise NotImplementedError(
        "ch02.predict_cost: count steps and bytes of both; set them equal and solve "
        "for the size"
    )
