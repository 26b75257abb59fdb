# ch02.repair_the_ring: edit this file, then run `dtlearn grade ch02.repair_the_ring`.
"""Repair a ring that hangs.

`hangs` below sends the tensors of all ranks around the ring, and every rank adds what it receives.
With two ranks or more it hangs. Run it in a `%%ranks` cell, read the diagnosis, and write the
version that ends.

**Given** `x`, this rank's tensor, with the same shape on all ranks.

**Return**, on every rank: the sum over all ranks, as a new tensor.

**Example** with 3 ranks:

| | `x` | returns |
|---|---|---|
| rank 0 | `[1.]` | `[6.]` |
| rank 1 | `[2.]` | `[6.]` |
| rank 2 | `[3.]` | `[6.]` |

**Rules**

- Communicate only with `dist.send`, `recv`, `isend`, `irecv` and `batch_isend_irecv`.
- `x` does not change.
- While a tensor is being sent, nothing may be received into it.
"""

import torch
import torch.distributed as dist


def hangs(x: torch.Tensor) -> torch.Tensor:
    """The version that hangs."""
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
        "ch02.repair_the_ring: the same messages, in an order of calls that cannot "
        "hang"
    )
