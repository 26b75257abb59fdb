# ch09.gather_and_free: edit this file, then run `dtlearn grade ch09.gather_and_free`.
"""Gather a unit's weights, compute with them, free them; gather them again in backward.

In ZeRO stage 3 a rank keeps its shard of the weights. The full weights of a unit, such as a block,
are there while it computes, and at no other time. What autograd keeps for the backward pass must
not keep them either.

**Given**

- `compute`, a function: `compute(weights, x)` is the output of the unit, a tensor. `weights` is one
  vector with all its weights.
- `shard`, this rank's shard of that vector, a parameter; rank r's is the r-th of N equal parts.
- `x`, the unit's input.
- `group`, the process group with N ranks; `None` means all ranks.

**Return** the unit's output. It takes part in autograd: `backward()` from it gives `x` its
gradient, and sets `shard.grad` to this rank's shard of the gradient of the weights, the mean over
the ranks of `group`. Your function is called for one unit after the other, with the output of the
last one as `x`, then `backward()` from a loss; also under `torch.no_grad()`, without a backward
pass.

**What a rank holds**, with 3 units, u, v, w, and N = 2:

| | of the full weights | of the full gradients |
|---|---|---|
| while v computes forward | those of v | |
| between forward and backward | none | |
| while v computes backward | those of v | those of v |
| after backward | none | none; in `shard.grad`, half of u's, of v's and of w's |

**Rules**

- Between forward and backward, and after backward, nothing of the size of a unit's weights is kept.
  While it works a rank may hold 5 times that, for weights, gradients and copies of them.
- Each unit is gathered once in forward and once in backward, and its gradient is reduce-scattered.

**Tools**: `dist.all_gather` and `dist.reduce_scatter` with lists, or `all_gather_into_tensor` and
`reduce_scatter_tensor`. `t.untyped_storage().resize_(0)` frees the memory of a tensor that others
still refer to; `resize_(nbytes)` gives it new memory, and what is written to `t.data` then is no
change to autograd. `y.register_hook(f)` calls `f` with the gradient of `y` before the backward of
what made `y`; `t.register_post_accumulate_grad_hook(f)` calls `f(t)` when `t.grad` is complete.
Another way: a `torch.autograd.Function` whose backward runs `compute` again.
"""

from collections.abc import Callable

import torch
import torch.distributed as dist


def gather_and_free(
    compute: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    shard: torch.nn.Parameter,
    x: torch.Tensor,
    *,
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """Compute one unit whose weights are there only meanwhile."""
    raise NotImplementedError(
        "ch09.gather_and_free: gather, compute, free; the same in backward, and reduce "
        "the gradient"
    )
