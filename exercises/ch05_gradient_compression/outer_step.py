# ch05.outer_step: edit this file, then run `dtlearn grade ch05.outer_step`.
"""DiLoCo's outer step.

Each rank has trained its copy of the model alone for some steps (the **inner** steps), from parameters
that were the same on all ranks. Now the ranks synchronise. Where their models have moved together is a
direction like a gradient, and an optimizer of its own takes one step along it, from where all ranks were:
SGD with Nesterov momentum (DiLoCo, arXiv:2311.08105, algorithm 1).

**Given**

- `parameters`, this rank's, as its inner steps left them;
- `old`, the parameters at the last synchronisation, the same on all ranks of the group;
- `buffers`, the momentum of the outer optimizer, the same on all ranks of the group, and zero in the
  first round;
- `lr` and `momentum` of the outer optimizer;
- `group`, the ranks that train one model, or `None` for all ranks. Other groups train other models.

The first three are lists of as many float32 tensors, of equal shapes.

**Change in place**, in the memory that they have, all tensors of the three lists. With g, the
**pseudo-gradient**, the mean over the ranks of the group of what the inner steps have taken off,
old - parameters:

1. buffer = momentum * buffer + g
2. direction = g + momentum * buffer, with the new buffer
3. new = old - lr * direction

That is what `torch.optim.SGD(..., nesterov=True)` computes. `parameters` and `old` both get the new
values: the next inner steps begin there, and will change `parameters` only. All ranks of the group end
with the same parameters, to the last bit. With `momentum` 0 it does not matter what is in `buffers`.

**Example** with 2 ranks, `lr` 0.5 and `momentum` 0.8. g is the mean of 0.5 and 1, so 0.75.

| | rank 0 | rank 1 |
|---|---|---|
| `parameters` | `[[1.5]]` | `[[1.0]]` |
| `old` | `[[2.0]]` | `[[2.0]]` |
| `buffers` | `[[1.0]]` | `[[1.0]]` |
| afterwards, `buffers` | `[[1.55]]` | `[[1.55]]` |
| afterwards, `parameters` and `old` | `[[1.005]]` | `[[1.005]]` |

The direction is 0.75 + 0.8 * 1.55 = 1.99, and 2 - 0.5 * 1.99 = 1.005.

**Budget**, per rank: one message for each tensor is good, one for all of them together is optimal, with
no more bytes than the parameters have.
"""

from collections.abc import Sequence

import torch
import torch.distributed as dist


@torch.no_grad()
def outer_step(
    parameters: Sequence[torch.Tensor],
    old: Sequence[torch.Tensor],
    buffers: Sequence[torch.Tensor],
    lr: float,
    momentum: float,
    *,
    group: dist.ProcessGroup | None = None,
) -> None:
    """Average the pseudo-gradients and take one Nesterov step, in place."""
    raise NotImplementedError(
        "ch05.outer_step: the mean pseudo-gradient over the group, then steps 1 to 3"
    )
