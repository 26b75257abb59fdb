# ch01.mean_over_uneven: edit this file, then run `dtlearn grade ch01.mean_over_uneven`.
"""Compute one mean over data that is spread unevenly.

`shard` is this rank's part of the data, a 1-D float32 tensor. The parts have different lengths; some may be empty, but
not all. Every rank returns the mean of all numbers of all ranks, a float32 tensor of shape `()`.

Example with 2 ranks: the mean of the four numbers is 16 / 4.

| | rank 0 | rank 1 |
|---|---|---|
| `shard` | `[1., 2., 3.]` | `[10.]` |
| result | `tensor(4.)` | `tensor(4.)` |

- Do not change `shard`.
- Do not send the data itself: what a rank sends does not grow with its part.
- Budget for each rank: good is at most 2 calls and 16 bytes, optimal is 1 call.
"""

import torch
import torch.distributed as dist


def mean_over_uneven(shard: torch.Tensor) -> torch.Tensor:
    """The mean over the numbers of all ranks, the same on every rank; shape ()."""
    raise NotImplementedError(
        "ch01.mean_over_uneven: agree on the mean with as few calls as you can"
    )
