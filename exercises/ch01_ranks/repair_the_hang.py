# ch01.repair_the_hang: edit this file, then run `dtlearn grade ch01.repair_the_hang`.
"""Repair a program that hangs.

In every step each rank takes its next batch, and the ranks add up what they have. `hangs` below
does this, and hangs: the ranks do not have the same number of batches. Run it in a `%%ranks`
cell and read the diagnosis; then write the version that ends.

Comes in: `batches`, this rank's list of 1-D float32 tensors. Ranks have lists of different
lengths; some may be empty.

Goes out, on every rank: a list with one float for each step, the sum over the numbers of all
batches of that step. There are as many steps as the longest list has batches. A rank that has
no batch left adds nothing, but it takes part.

Example with 2 ranks:
    rank 0 has [[1., 2.], [5.], [4.]]      rank 1 has [[10.]]
    both return [13.0, 5.0, 4.0]

Rule: no batch may be left out, and none may count twice.
"""

import torch
import torch.distributed as dist


def hangs(batches: list[torch.Tensor]) -> list[float]:
    """The program as it was found. It is right if all ranks have equally many batches."""
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
