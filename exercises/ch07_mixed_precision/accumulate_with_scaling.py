# ch07.accumulate_with_scaling: edit this file, then run `dtlearn grade ch07.accumulate_with_scaling`.
"""Make one training step from several micro-batches, with a loss scaler.

A batch that does not fit into memory is cut into k micro-batches, whose gradients add up. With a
loss scaler there is one scale for all of them, one decision about an overflow, and one step.

**Given** `model`, a `torch.nn.parallel.DistributedDataParallel`; `micro_batches`, this rank's list
of k pairs `(x, y)`, k >= 1, all of the same size on all ranks; `scaler`, a
`torch.amp.GradScaler`; `optimizer`, of all parameters of the model; and `max_norm`. The gradients
of the previous step are still in the parameters, and may have overflowed.

**Return** nothing. Afterwards, on every rank:

- The optimizer has made one step with the gradient of the mean squared error over the whole batch
  (all micro-batches of all ranks), scaled down to norm `max_norm` if it is longer. Both the
  gradient and its norm are unscaled ones.
- If a gradient of any micro-batch on any rank overflowed, no parameter has changed. Its loss may be
  finite all the same.
- The scaler was updated once: it counts one more good step, or lowers its scale.

**Example** with 2 ranks, k = 2, a scale of 8 and a large `max_norm`. The gradients of the
micro-batches' own means, unscaled:

| rank 0 | rank 1 | the step is made with | scale afterwards |
|---|---|---|---|
| 1, 2 | 3, 6 | 3, the mean of all four | 8 |
| 1, 2 | 3, inf | nothing: it is skipped | 4 |

**Rules**: for each micro-batch one forward pass through `model`, and its backward pass before the
next forward pass. Nothing is sent before the last micro-batch, and then through `torch.distributed`
only. The gradients are sent once: more than n + 8 bytes (below) fail.

**Budget**, bytes that a rank puts into collectives: n is optimal, the size of all gradients, which DDP
averages. n + 8 is good: the other 8 are room for two float32 numbers, for ranks that ask each other for
their overflow or their norm.
"""

import torch
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_


def accumulate_with_scaling(
    model: DistributedDataParallel,
    micro_batches: list[tuple[torch.Tensor, torch.Tensor]],
    scaler: torch.amp.GradScaler,
    optimizer: torch.optim.Optimizer,
    max_norm: float,
) -> None:
    """Make one training step from this rank's micro-batches."""
    raise NotImplementedError(
        "ch07.accumulate_with_scaling: one step from all micro-batches, with the "
        "scaler"
    )
