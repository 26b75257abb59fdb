# ch02.ring_all_gather: edit this file, then run `dtlearn grade ch02.ring_all_gather`.
"""All-gather on a ring: every rank gets the tensors of all ranks.

**Given** `x`, this rank's tensor, with the same shape and dtype on all ranks.

**Return**, on every rank: a list of N new tensors. Entry r is the `x` of rank r.

**Example** with 3 ranks:

| | `x` | returns |
|---|---|---|
| rank 0 | `[0.]` | `[[0.], [10.], [20.]]` |
| rank 1 | `[10.]` | the same |
| rank 2 | `[20.]` | the same |

**Rules**

- Communicate only with `dist.send`, `recv`, `isend`, `irecv` and `batch_isend_irecv`.
- Each rank sends to its right neighbour only: rank r to r + 1, the last rank to rank 0.
- `x` does not change.

**Budget**, bytes that a rank sends: (N - 1)/N n, where n is the size of the result, N times that of
`x`.
"""

import torch
import torch.distributed as dist


def ring_all_gather(x: torch.Tensor) -> list[torch.Tensor]:
    """The tensors of all ranks, ordered by rank."""
    raise NotImplementedError(
        "ch02.ring_all_gather: N - 1 times: pass on to the right what came last from "
        "the left"
    )
