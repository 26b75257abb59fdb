# ch03.accumulate_with_no_sync: edit this file, then run `dtlearn grade ch03.accumulate_with_no_sync`.
"""Accumulate gradients over micro-batches, and communicate once.

If a batch does not fit into memory, split it into k micro-batches, add up their gradients, and make
one optimizer step. DDP averages gradients over the ranks in every backward pass: k times the
traffic, of which only the last is needed.

**Given** `model`, a `torch.nn.parallel.DistributedDataParallel`; and `micro_batches`, this rank's
list of k pairs `(x, y)`, k >= 1, all of the same size on all ranks. The gradients of the previous
step are still in the parameters.

**Return** nothing. Afterwards, on every rank, each gradient is that of the mean squared error over
the whole batch: all micro-batches of all ranks.

**Example** with 2 ranks and k = 3; the gradients of the micro-batches' own means are

| | rank 0 | rank 1 | afterwards, on both |
|---|---|---|---|
| gradients | 1, 2, 3 | 4, 5, 9 | 4, the mean of all six |

**Rules**: for each micro-batch one forward pass through `model`, and its backward pass before the
next forward pass. No optimizer step. The gradients are reduced once.

**Tool**: `model.no_sync()` is a context manager that turns the averaging off. DDP decides in the
**forward** pass whether the backward pass after it communicates.

**Budget**, bytes: n is optimal, the size of all gradients.
"""

import torch
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel


def accumulate_with_no_sync(
    model: DistributedDataParallel,
    micro_batches: list[tuple[torch.Tensor, torch.Tensor]],
) -> None:
    """Leave the gradient of the whole batch's loss in the parameters."""
    raise NotImplementedError(
        "ch03.accumulate_with_no_sync: add up over the micro-batches, and communicate "
        "once"
    )
