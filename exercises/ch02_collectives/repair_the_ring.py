# ch02.repair_the_ring: edit this file, then run `dtlearn grade ch02.repair_the_ring`.
"""Repair a ring that hangs.

The tensors of all ranks travel around the ring, and every rank adds up what comes by. `hangs` below
does this, and hangs as soon as there are two ranks. Run it in a `%%ranks` cell and read the
diagnosis: who waits for whom? Then write the version that ends.

Comes in: `x`, this rank's tensor, with the same shape on all ranks.

Goes out, on every rank: the sum over all ranks, as a new tensor.

Example with 3 ranks: rank r has [r + 1.]
    all return [6.]

A blocking send may return early, if the network keeps a copy of a small message somewhere: with
NCCL or MPI such a program can pass every small test, and hang in the real one. gloo never does, so
here it hangs at once.

Rules: only dist.send, dist.recv, dist.isend and dist.irecv. `x` stays as it is. Beware of the
second trap: while a tensor is being sent, nothing may be received into it.
"""

import torch
import torch.distributed as dist


def hangs(x: torch.Tensor) -> torch.Tensor:
    """The program as it was found."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    total, token = x.clone(), x.clone()
    for _ in range(world_size - 1):
        dist.send(token, (rank + 1) % world_size)
        dist.recv(token, (rank - 1) % world_size)
        total += token
    return total


def repair_the_ring(x: torch.Tensor) -> torch.Tensor:
    """The sum over all ranks."""
    raise NotImplementedError(
        "ch02.repair_the_ring: the same journey, in an order of calls that cannot hang"
    )
