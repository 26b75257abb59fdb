# ch10.two_stages: edit this file, then run `dtlearn grade ch10.two_stages`.
"""Train a model whose two halves are on two ranks.

A model that is too large for one rank is cut into two stages. In forward, the outputs of the first stage are
sent to the rank that has the last one; in backward, the gradient of these outputs is sent back.

**Given**, on both ranks:

- `stage`, this rank's half, an `nn.Module`, and `optimizer`, which has its parameters;
- `is_first`, whether it is the first half, and `other`, the rank that has the other half;
- `batches`, a list as long as on the other rank: on the rank with the first stage the inputs of each
  training step, on the rank with the last stage its targets;
- `loss_fn(outputs, targets)`, which returns the loss of a batch.

**Do** one training step for each batch: forward, backward, and a step of the optimizer on both ranks,
with the gradients of this batch alone, as if one process had the whole model.

**Return** the losses of all steps as floats on the rank with the last stage, and `[]` on the other.

The outputs of the first stage are float32. They have 1 to 4 dimensions, in each batch perhaps another
shape, which the other rank does not know beforehand. They may not be contiguous in memory, and
`dist.send` takes only tensors that are.

**Example** with one weight in each stage, w = 2 and v = 3, loss (v w x - target)², and a batch with x = 1
and target 5:

| | rank with the first stage | rank with the last stage |
|---|---|---|
| forward | sends w x = 2 | receives 2; the loss is (6 - 5)² = 1 |
| backward | receives 6; the gradient of w is 6 x = 6 | the gradient of v is 2 · 1 · 2 = 4; sends 2 · 1 · v = 6 |

**Rules**: `dist.send`, `recv`, `isend`, `irecv` and `batch_isend_irecv` only; the outputs and their gradient
are sent once, besides them at most 128 bytes a batch. Each stage is called once for each batch.
"""

from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist


def two_stages(
    stage: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    batches: Sequence[torch.Tensor],
    loss_fn: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    *,
    is_first: bool,
    other: int,
) -> list[float]:
    """Train one of two stages; return the losses where they are known."""
    raise NotImplementedError(
        "ch10.two_stages: send the shape and the outputs; send the gradient back; step "
        "on both ranks"
    )
