# ch12.split_and_reassemble: edit this file, then run `dtlearn grade ch12.split_and_reassemble`.
"""Cut a weight along one of its dims, and put it together again.

In tensor parallelism each rank of a group holds one part of a weight. The parts are equal and contiguous,
and they follow one another in the order of the ranks **in the group**. A group may be smaller than the
job, and need not begin with rank 0.

**Given**, on every rank:

- `full`, the whole weight, the same on all ranks of the group. It has one or more dimensions and any
  dtype, and may not be contiguous in memory;
- `dim`, the dimension to cut along; a negative one counts from the end;
- `group`, the process group of the ranks that share this weight.

**Return** a tuple of two:

1. `part`, this rank's part, a tensor with memory of its own;
2. `reassemble`, a function, which all ranks of the group call any number of times. Each gives it a
   tensor with the shape and dtype of its part, which may have other values by then and may not be
   contiguous. It returns the whole weight that these parts make, a new tensor, on every rank.

If the ranks of the group do not divide the size of `dim`, raise a `ValueError` on every rank, with a
message that names both numbers.

**Memory**: that a rank holds a part only is the point of it. Once `full` is dropped by the caller, its
memory must be free: neither `part` nor `reassemble` may refer to it.

**Example**: `full` is `[[1, 2, 3, 4], [5, 6, 7, 8]]`, `dim` is 1, the group has the ranks 1 and 3.

| | rank 1 | rank 3 |
|---|---|---|
| `part` | `[[1, 2], [5, 6]]` | `[[3, 4], [7, 8]]` |
| gives to `reassemble` | `[[0, 2], [5, 6]]` | `[[3, 4], [7, 9]]` |
| gets back | `[[0, 2, 3, 4], [5, 6, 7, 9]]` | `[[0, 2, 3, 4], [5, 6, 7, 9]]` |

**Budget**: to cut, nothing is sent. To reassemble, one message with the bytes of one part is optimal. A
collective counts as one message. What is sent is contiguous: gloo takes other tensors in some calls, NCCL in none.
"""

from collections.abc import Callable

import torch
import torch.distributed as dist


def split_and_reassemble(
    full: torch.Tensor, dim: int, group: dist.ProcessGroup
) -> tuple[torch.Tensor, Callable[[torch.Tensor], torch.Tensor]]:
    """Return this rank's part, and the function that makes the whole of the parts."""
    raise NotImplementedError(
        "ch12.split_and_reassemble: refuse what does not fit, cut and copy; and the "
        "way back"
    )
