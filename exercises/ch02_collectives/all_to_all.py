# ch02.all_to_all: edit this file, then run `dtlearn grade ch02.all_to_all`.
"""All-to-all: every rank sends another part to every rank.

**Given** `parts`, a list of N tensors of the same shape and dtype. Part d is for rank d.

**Return**, on rank r: a list of N new tensors. Entry s is part r of rank s; entry r is the rank's
own part r.

**Example** with 2 ranks:

| | `parts` | returns |
|---|---|---|
| rank 0 | `[[1.], [2.]]` | `[[1.], [30.]]` |
| rank 1 | `[[30.], [40.]]` | `[[2.], [40.]]` |

Seen as a table with a row per rank, the result is the transposed table.

**Rules**

- Communicate only with `dist.send`, `recv`, `isend`, `irecv` and `batch_isend_irecv`. Name the
  other rank in each call: a receive from any rank is not allowed.
- `parts` does not change.
- At most 3 (N - 1) messages may follow one another. N - 1 are enough if in each step every rank
  sends one part and receives one.

**Budget**, bytes that a rank sends: (N - 1)/N n, where n is the size of all its parts.
"""

import torch
import torch.distributed as dist


def all_to_all(parts: list[torch.Tensor]) -> list[torch.Tensor]:
    """The parts that all ranks have for this one, ordered by rank."""
    raise NotImplementedError(
        "ch02.all_to_all: send each part to its rank, and receive one from every other "
        "rank"
    )
