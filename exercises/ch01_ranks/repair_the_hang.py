# ch01.repair_the_hang: edit this file, then run `dtlearn grade ch01.repair_the_hang`.
"""Repair a program that hangs.

In every step each rank takes its next batch, and the ranks sum the numbers in their batches. `hangs`, below, does
this, and hangs when the ranks have different numbers of batches. To see the diagnosis, copy it to a `%%ranks` cell and
call it there. Then write the version that ends.

`batches` is this rank's list of 1-D float32 tensors; it may be empty. Every rank returns the same list of floats,
one for each step: the sum over the batches of all ranks in that step. There are as many steps as the longest list has
batches. A rank that has no batch left adds nothing, but takes part.

Example with 2 ranks, in 3 steps:

| | rank 0 | rank 1 | sum |
|---|---|---|---|
| step 0 | `[1., 2.]` | `[10.]` | 13.0 |
| step 1 | `[5.]` | – | 5.0 |
| step 2 | `[4.]` | – | 4.0 |

Both return `[13.0, 5.0, 4.0]`. Every batch counts exactly once.
"""

import torch
import torch.distributed as dist


def hangs(batches: list[torch.Tensor]) -> list[float]:
    """The program as it was found: right if all ranks have equally many batches."""
    sums = []
    for batch in batches:
        total = batch.sum()
        dist.all_reduce(total)
        sums.append(total.item())
    return sums


def repair_the_hang(batches: list[torch.Tensor]) -> list[float]:
    """The sum over all ranks of each step, the same list on every rank."""
    raise NotImplementedError(
        "ch01.repair_the_hang: make the same calls on every rank, also without a batch"
    )
