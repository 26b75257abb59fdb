# ch03.accumulate_with_no_sync: edit this file, then run `dtlearn grade ch03.accumulate_with_no_sync`.
"""Accumulate gradients over micro-batches, and let the ranks talk once.

A batch that does not fit into memory is cut into k micro-batches: k forward and backward passes
add their gradients up, then comes one optimizer step. DistributedDataParallel averages gradients
over the ranks in every backward pass. That is k times the traffic, for nothing: only the last
gradients are stepped with. `model.no_sync()` is a context in which it does not.

Comes in: `model`, a torch.nn.parallel.DistributedDataParallel, and `micro_batches`, this rank's
list of k pairs (x, y), k >= 1, all of the same size on all ranks. The gradients of the last step
are still in the parameters.

Goes out: nothing is returned. Afterwards the gradient of every parameter is, on every rank, that of
the mean squared error over the whole batch: all micro-batches of all ranks.

Example with 2 ranks, k = 3, and gradients of the single micro-batches' mean errors
    rank 0: 1., 2., 3.         rank 1: 4., 5., 9.
    afterwards, on both: 4., the mean of all six

Rules: for each micro-batch one forward pass, by calling `model`, and its backward pass before the
next one begins; no optimizer step. The gradients are reduced once. Budget, bytes: optimal n, the size of all gradients.

Beware: DDP decides in the forward pass whether the backward pass after it will communicate.
"""

import torch
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel


def accumulate_with_no_sync(
    model: DistributedDataParallel, micro_batches: list[tuple[torch.Tensor, torch.Tensor]]
) -> None:
    """Leave the gradient of the large batch's mean squared error in the parameters."""
    raise NotImplementedError(
        "ch03.accumulate_with_no_sync: add up over the micro-batches, and communicate "
        "once"
    )
