# ch02.ring_all_gather: edit this file, then run `dtlearn grade ch02.ring_all_gather`.
"""All-gather on a ring: everybody gets everybody's tensor.

Comes in: `x`, this rank's tensor, with the same shape and dtype on all ranks.

Goes out, on every rank: a list of N tensors; in place r stands the x of rank r.

Example with 3 ranks: rank r has [10. * r]
    all return [[0.], [10.], [20.]]

The ring: in each of N - 1 steps every rank sends to the right what it received last; in the first
step that is its own x.

Rules: only dist.send, dist.recv, dist.isend and dist.irecv; each rank sends to its right
neighbour only. `x` stays as it is.

Budget, bytes that a rank sends: (N - 1)/N n, where n is the size of the result, N times that of x.
"""

import torch
import torch.distributed as dist


def ring_all_gather(x: torch.Tensor) -> list[torch.Tensor]:
    """The tensors of all ranks, ordered by rank."""
    raise NotImplementedError(
        "ch02.ring_all_gather: N - 1 times: pass on to the right what came last from "
        "the left"
    )
