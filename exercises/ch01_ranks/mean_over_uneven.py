# ch01.mean_over_uneven: edit this file, then run `dtlearn grade ch01.mean_over_uneven`.
"""One mean over data that is spread unevenly.

Comes in: `shard`, this rank's part of the data, a 1-D float32 tensor. The parts have different
lengths, and some may be empty; all of them together hold at least one number.

Goes out, on every rank: the mean of all numbers of all ranks, as a float32 tensor without
dimensions (shape ()).

Example with 2 ranks:
    rank 0 has [1., 2., 3.], rank 1 has [10.]
    both return tensor(4.), which is 16 / 4

Rules: `shard` stays as it is. Send as little as you can: the data itself does not have to
travel. Budget, per rank: good 2 calls and 16 bytes, optimal 1 call.
"""

import torch
import torch.distributed as dist


def mean_over_uneven(shard: torch.Tensor) -> torch.Tensor:
    """The mean over the numbers of all ranks, the same on every rank; shape ()."""
    raise NotImplementedError(
        "ch01.mean_over_uneven: agree on the mean with as few calls as you can"
    )
