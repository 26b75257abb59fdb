# ch10.loss_scaling: edit this file, then run `dtlearn grade ch10.loss_scaling`.
"""Micro-batches whose gradients are those of the whole batch.

A pipeline computes a loss for each micro-batch, on the rank with the last stage. The gradients of all
micro-batches are added up, on every rank. For these sums to be the gradients of the **mean loss over the
whole batch**, on all stages, the losses must be scaled before their backward passes. Micro-batches may
have different numbers of rows: 10 rows in micro-batches of 4 are 4, 4 and 2.

(This has nothing to do with the loss scale of mixed precision.)

**Given**, on the rank with the last stage:

- `stage`, the last stage, an `nn.Module`. Its parameters may have gradients from an earlier batch
  already, which stay in the sum;
- `activations`, what arrived from the rank before: a tensor for each micro-batch, rows first, without
  `requires_grad`;
- `targets`, a tensor for each micro-batch;
- `loss_fn(outputs, targets)`, the mean loss over the rows of what it is given.

**Do** for each micro-batch, in order: its forward pass, then its backward pass, before the forward pass of the
next one, so that the activations of only one are kept at a time. The gradients of the batch's mean loss are added to
the `.grad` of the parameters.

**Return** a tuple: a list of what is sent back, for each micro-batch the gradient of the batch's mean loss
with respect to its activations; and that loss, a float.

**Example**: a stage with one weight w = 2, the loss w a - t of a row, 3 rows in two micro-batches:

| micro-batch | activations | targets | its mean loss | in the batch's loss | sent back | in w.grad |
|---|---|---|---|---|---|---|
| 0 | [1, 2] | [0, 0] | 3 | 2 | [2/3, 2/3] | 1 |
| 1 | [4] | [1] | 7 | 7/3 | [2/3] | 4/3 |
"""

from collections.abc import Callable, Sequence

import torch


def loss_scaling(
    stage: torch.nn.Module,
    activations: Sequence[torch.Tensor],
    targets: Sequence[torch.Tensor],
    loss_fn: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
) -> tuple[list[torch.Tensor], float]:
    """Add up the gradients of the batch's mean loss; return what is sent back, and the loss."""
    raise NotImplementedError(
        "ch10.loss_scaling: weigh each micro-batch's loss, and run its backward pass"
    )
