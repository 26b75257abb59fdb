# ch03.weighted_mean: edit this file, then run `dtlearn grade ch03.weighted_mean`.
"""Compute the loss whose gradients DDP averages correctly, when ranks have different numbers of
tokens.

The loss of a step should be the mean over the tokens of **all** ranks. But DDP adds up the
gradients of the N ranks and divides by N, however many tokens each rank had.

**Given** `loss_sum`, the sum of the losses of this rank's tokens, a tensor of shape `()` with a
graph; and `count`, the number of these tokens, an int. A rank may have none; then its
`loss_sum` is 0. Some rank has at least one token.

**Return** a tensor of shape `()`, on which this rank calls `backward()`, such that

- DDP's average of the gradients is the gradient of the mean over all tokens of all ranks;
- the average of the returned losses over the ranks is that mean.

**Example** with 2 ranks: the mean over all tokens is 16 / 4 = 4.

| | `loss_sum` | `count` | returns |
|---|---|---|---|
| rank 0 | 6 | 3 | 3 |
| rank 1 | 10 | 1 | 5 |

**Rule**: do not change `loss_sum` and `count`.

**Budget**, per rank: 2 calls are good, 1 is optimal; 16 bytes.
"""

import torch
import torch.distributed as dist


def weighted_mean(loss_sum: torch.Tensor, count: int) -> torch.Tensor:
    """Return the loss for backward() on this rank, of shape ()."""
    raise NotImplementedError(
        "ch03.weighted_mean: divide by what makes DDP's average of gradients the right "
        "one"
    )
