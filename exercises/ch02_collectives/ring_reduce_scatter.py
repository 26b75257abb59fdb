# ch02.ring_reduce_scatter: edit this file, then run `dtlearn grade ch02.ring_reduce_scatter`.
"""Reduce-scatter on a ring: each rank gets the sum of one part.

**Given** `parts`, a list of N tensors on each of the N ranks, all of one dtype. Part c has the same
shape on all ranks. Different parts may have different shapes, and a part may be empty.

**Return**, on rank r: the sum of all ranks' part r, as a new tensor.

**Example** with 2 ranks:

| | `parts` | returns |
|---|---|---|
| rank 0 | `[[1., 2.], [3.]]` | `[11., 22.]` |
| rank 1 | `[[10., 20.], [30.]]` | `[33.]` |

**Rules**

- Communicate only with `dist.send`, `recv`, `isend`, `irecv` and `batch_isend_irecv`.
- Each rank sends to its right neighbour only: rank r to r + 1, the last rank to rank 0.
- `parts` does not change.

**Budget**, bytes that a rank sends: (N - 1)/N n, where n is N times the largest part.
"""

import torch
import torch.distributed as dist


def ring_reduce_scatter(parts: list[torch.Tensor]) -> torch.Tensor:
    """The sum over all ranks of the part with this rank's number."""
    raise NotImplementedError(
        "ch02.ring_reduce_scatter: pass partial sums to the right, N - 1 times, and "
        "add to each"
    )
