# ch05.topk_feedback: edit this file, then run `dtlearn grade ch05.topk_feedback`.
"""Send only the largest elements of a gradient, and keep the rest for later.

Most elements of a gradient are small. So a rank sends k of them, those of largest magnitude, each as its
index and its value: 8 bytes an element with int32 indices. What it did not send it keeps as its
**residual**, and adds it to its next gradient. So an element that is always small is sent, too, when
enough of it has come together: that is error feedback.

**Given**

- `gradient`, this rank's own, a float32 vector;
- `residual`, a vector of that size: what this rank has not sent so far;
- `k`, how many elements each rank sends; if it is more than the gradient has, all are sent;
- `group`, the ranks that train together, or `None` for all ranks.

**Do**: add the residual to the gradient. Of the sum, pick the k elements that are largest in magnitude.
Of several that are equally large it does not matter which are picked. Send these k, and receive those
of the other ranks of the group: each rank picks its own.

**Return** a pair of new vectors, as long as the gradient:

- the mean over the ranks of the group of what they sent. An element that a rank did not send counts as 0
  of that rank;
- the new residual of this rank: the sum of gradient and residual, with 0 where it was sent.

**Example** with 2 ranks and `k` 1:

| | rank 0 | rank 1 |
|---|---|---|
| `gradient` | `[2.0, -3.0, 0.5]` | `[1.0, 2.0, 1.0]` |
| `residual` | `[0.0, -1.0, 0.0]` | `[4.0, 0.0, 0.0]` |
| their sum | `[2.0, -4.0, 0.5]` | `[5.0, 2.0, 1.0]` |
| sent | element 1: `-4.0` | element 0: `5.0` |
| returns the mean | `[2.5, -2.0, 0.0]` | `[2.5, -2.0, 0.0]` |
| and the residual | `[2.0, 0.0, 0.5]` | `[0.0, 2.0, 1.0]` |

**Tools**: `x.topk(k).indices` are the indices of the k largest elements. `dist.all_gather(parts, own)` puts the
tensors of all ranks, of one size, into the list `parts`.

**Rule**: `gradient` and `residual` stay as they are, and so does what an earlier call returned.

**Budget**: a rank hands over 12 k bytes for good, 8 k bytes for optimal. An answer that sends more, such
as the whole vector, passes without a tier.
"""

import torch
import torch.distributed as dist


def topk_feedback(
    gradient: torch.Tensor,
    residual: torch.Tensor,
    k: int,
    group: dist.ProcessGroup | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the mean of what the ranks sent, and what this rank kept."""
    raise NotImplementedError(
        "ch05.topk_feedback: add, pick, send indices and values; return the mean, and "
        "what was not sent"
    )
