# ch03.weighted_mean: edit this file, then run `dtlearn grade ch03.weighted_mean`.
"""A mean over all tokens, when the ranks have different numbers of them.

In a batch of sentences each rank has another number of tokens. The loss of the whole step is to be
the mean over the tokens of all ranks. But DistributedDataParallel averages gradients: it adds up
those of the N ranks and divides by N, whatever the ranks had. So each rank needs the right loss.

Comes in: `loss_sum`, the sum of the losses of this rank's tokens, a tensor of shape () that
backward() can start from; and `count`, how many tokens that are, an int. A rank may have none: its
loss_sum is then 0. All ranks together have at least one token.

Goes out: a tensor of shape (), the loss that this rank calls backward() on. Two things must hold:
    - the average over the ranks of the gradients, as DDP makes it, is the gradient of the mean over
      all tokens of all ranks;
    - the average over the ranks of the returned losses is that mean.

Example with 2 ranks:
    rank 0 has loss_sum = 6. and count = 3, rank 1 has loss_sum = 10. and count = 1
    the mean is 16 / 4 = 4; rank 0 returns 3., rank 1 returns 5.

Rule: loss_sum and count stay as they are.

Budget, per rank: calls: good 2, optimal 1. Bytes: 16.
"""

import torch
import torch.distributed as dist


def weighted_mean(loss_sum: torch.Tensor, count: int) -> torch.Tensor:
    """The loss for backward() on this rank; shape ()."""
    raise NotImplementedError(
        "ch03.weighted_mean: divide by what makes DDP's average of gradients the right "
        "one"
    )
