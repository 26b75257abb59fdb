# ch12.sharded_cross_entropy: edit this file, then run `dtlearn grade ch12.sharded_cross_entropy`.
"""Cross entropy of logits whose vocabulary is divided over the ranks.

With V tokens and t ranks in the group, rank r **of the group** has the logits of the tokens from r V/t
on, V/t of them. The logits of all ranks together are the largest activation of a language model, so they
are never put together. With the logits x of all V tokens, the loss of one target is

    log(sum of exp(x[v]) over all v) - x[target]

**Given**

- `logits`, (B, T, V/t), this rank's part, float32 or float64, with a gradient to come;
- `targets`, int64, (B, T), token ids from 0 to V - 1, the same on all ranks of the group. A target of
  -100 is **ignored**: it counts neither in the loss nor in its divisor. At least one is not ignored;
- `group`, the ranks that have the logits between them, or `None` for all ranks. Other groups have
  other logits and targets.

**Return** the mean loss of the targets that are not ignored, as a tensor of shape () on every rank of
the group: what `torch.nn.functional.cross_entropy` returns for the whole logits. Logits may be as large
as 10,000 in size, of either sign.

**Backward** sends nothing. Every rank begins its backward pass with the same gradient of the loss, which may be any
number. The gradient of `logits` is this rank's part of what the whole logits would get.

**Example** with t = 2, V = 4, B = 1, T = 2. The second target is ignored.

| | rank 0 | rank 1 |
|---|---|---|
| `logits` | `[[[0., 0.], [5., 5.]]]` | `[[[0., 0.], [5., 5.]]]` |
| `targets` | `[[1, -100]]` | `[[1, -100]]` |
| returns | log 4 = 1.3863 | 1.3863 |
| afterwards, the gradient of `logits` | `[[[0.25, -0.75], [0., 0.]]]` | `[[[0.25, 0.25], [0., 0.]]]` |

**Rule**: `logits` and `targets` stay as they are.

**Budget** for each rank, with n the bytes of one number per target, B T numbers in all: 3 messages and
4 n bytes are good; 2 messages and 3 n bytes are optimal. A collective counts as one message.
"""

import torch
import torch.distributed as dist


def sharded_cross_entropy(
    logits: torch.Tensor, targets: torch.Tensor, group: dist.ProcessGroup | None = None
) -> torch.Tensor:
    """Return the mean loss, without gathering the logits."""
    raise NotImplementedError(
        "ch12.sharded_cross_entropy: the loss of all ranks' logits, and the gradient "
        "of this rank's"
    )
