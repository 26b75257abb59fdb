# ch03.shard_indices: edit this file, then run `dtlearn grade ch03.shard_indices`.
"""Which samples does a rank see? Deal a data set out, equally, and differently in every epoch.

Comes in: `n`, the number of samples, at least 1; `num_replicas`, the number of ranks that share
them, N below; `rank`, which of these is meant; `shuffle`, `seed`, `epoch` and `drop_last`, the same
on all ranks. All of them are arguments: nothing is asked of `dist`.

Goes out: the list of this rank's indices, in the order in which it visits them, equal to that of
torch.utils.data.DistributedSampler. It is made in three steps.

    1. One order of all n samples, the same on all ranks: 0, 1, 2, ...; or, with `shuffle`,
       torch.randperm(n, generator=g), where g is a torch.Generator seeded with seed + epoch.
    2. Make its length a multiple of N. Without `drop_last`, lengthen it: begin the order again from
       its start, as often as needed. With `drop_last`, leave out what is too much at its end.
    3. Deal it out like cards: rank r gets the places r, r + N, r + 2 N, ...

So all ranks have equally many samples. They must: a rank that makes a step more than the others
waits for them in its all-reduce, for ever.

Example: n = 5, N = 2, no shuffle
    rank 0 gets [0, 2, 4], rank 1 gets [1, 3, 0]: sample 0 is seen twice
    with drop_last: rank 0 gets [0, 2], rank 1 gets [1, 3]

Beware: n may be smaller than N. With drop_last no rank has a sample then.

Rules: no communication, every rank works out the same order for itself; and torch's global random
numbers stay as they are.
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
    """The indices that this rank visits in this epoch."""
    raise NotImplementedError(
        "ch03.shard_indices: order all samples, pad or cut the order, take this rank's "
        "places"
    )
