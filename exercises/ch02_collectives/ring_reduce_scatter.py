# ch02.ring_reduce_scatter: edit this file, then run `dtlearn grade ch02.ring_reduce_scatter`.
"""Reduce-scatter on a ring: one part of the sum for each rank.

Comes in: `parts`, a list of N tensors of one dtype on each of the N ranks. Part c has the same
shape on all ranks; different parts may have different shapes, and a part may be empty.

Goes out, on rank r: the sum of all ranks' part r, as a new tensor. Not the whole sum: one part.

Example with 2 ranks:
    rank 0 has [[1., 2.], [3.]]         rank 1 has [[10., 20.], [30.]]
    rank 0 returns [11., 22.]           rank 1 returns [33.]

The ring: a partial sum travels to the right, and every rank that it comes to adds its own summand.
N such journeys go on at once, one for each part. After N - 1 steps each has been everywhere, and
must then be on the rank that it belongs to. So where does the journey of part c begin?

Rules: only dist.send, dist.recv, dist.isend and dist.irecv; each rank sends to its right
neighbour, rank + 1, only (the last to rank 0). `parts` stays as it is.

Budget, bytes that a rank sends: (N - 1)/N n, where n is N times the largest part.
"""

import torch
import torch.distributed as dist


def ring_reduce_scatter(parts: list[torch.Tensor]) -> torch.Tensor:
    """The sum over all ranks of the part with this rank's number."""
    raise NotImplementedError(
        "ch02.ring_reduce_scatter: pass partial sums to the right, N - 1 times, and "
        "add to each"
    )
