# ch03.shard_indices: edit this file, then run `dtlearn grade ch03.shard_indices`.
"""Return the samples that one rank visits in one epoch.

**Given**, all as arguments (ask `dist` nothing):

- `n`: the number of samples, at least 1
- `num_replicas`: the number of ranks, N below; and `rank`: the rank that is asked for
- `shuffle`, `seed`, `epoch`, `drop_last`: the same on all ranks

**Return** the list of this rank's indices, in order. It equals that of
`torch.utils.data.DistributedSampler`:

1. Make one order of all n samples, the same on all ranks: 0, 1, 2, ...; with `shuffle`,
   `torch.randperm(n, generator=g)`, where `g` is a `torch.Generator` seeded with `seed + epoch`.
2. Make its length a multiple of N. By default, pad: append the order to itself, as often as needed,
   and cut. With `drop_last`, cut off the remainder instead.
3. Rank r takes positions r, r + N, r + 2N, ...

**Example**: n = 5, N = 2, no shuffle.

|  | rank 0 | rank 1 | |
|---|---|---|---|
| default | `[0, 2, 4]` | `[1, 3, 0]` | sample 0 is used twice |
| `drop_last` | `[0, 2]` | `[1, 3]` | sample 4 is left out |

**Rules**: no communication. Do not touch torch's global random state. `n` may be smaller than N;
with `drop_last` every rank then gets an empty list.
"""

import math

import torch


def shard_indices(
    n: int,
    num_replicas: int,
    rank: int,
    *,
    shuffle: bool = True,
    seed: int = 0,
    epoch: int = 0,
    drop_last: bool = False,
) -> list[int]:
    """Return the indices that this rank visits in this epoch."""
    raise NotImplementedError(
        "ch03.shard_indices: order all samples, pad or cut the order, take this rank's "
        "places"
    )
