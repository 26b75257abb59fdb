# ch07.clip_over_ranks: edit this file, then run `dtlearn grade ch07.clip_over_ranks`.
"""Clip gradients that are still scaled, of a model that is spread over the ranks.

The loss was multiplied by a scale S before `backward()`, so all gradients are S times too long.
The gradient of the model is one long vector. Each rank has a part of it in `shards`; the parameters
in `replicated` (biases and norms under tensor parallelism, say) stand on every rank, and were given
the same gradient there. The norm of the model's gradient is the square root of the sum of the
squares of all its elements, **each parameter counted once**.

**Given** `shards` and `replicated`, lists of parameters whose `.grad` is float32; `scale`, S; and
`max_norm`. A `.grad` may be `None`, or zero. A rank may have no shards. S may change from step to step.

**Return** the norm of the model's unscaled gradient, a float, the same on all ranks. Afterwards the
gradients are unscaled, and if that norm is above `max_norm`, all of them are multiplied by
`max_norm` / norm.

If a gradient on **any** rank is infinite or NaN, the step has to be skipped: then return `None` on
every rank. What is in the gradients no longer matters then.

**Example** with 2 ranks, `scale` 10 and `max_norm` 1; the norm is 5, the square root of 9 + 12 + 4.

| | rank 0 | rank 1 | of the model, unscaled |
|---|---|---|---|
| gradients of `shards` | `[30.]` | `[20., 20., 20.]` | `[3.]`, `[2., 2., 2.]` |
| gradient of `replicated` | `[20.]` | `[20.]` | `[2.]` |
| afterwards, `shards` | `[0.6]` | `[0.4, 0.4, 0.4]` | |
| afterwards, `replicated` | `[0.4]` | `[0.4]` | |
| returns | 5 | 5 | |

**Rule**: ranks learn of each other through `torch.distributed` only.

**Budget**, per rank: 2 calls and 8 bytes are good; 1 call and 4 bytes are optimal. No square and
no sum of squares here is too large for float32, also where gradients are still scaled.
An answer that sends more, such as pickled objects, passes without a tier.
"""

import math
from collections.abc import Sequence

import torch
import torch.distributed as dist


def clip_over_ranks(
    shards: Sequence[torch.Tensor],
    replicated: Sequence[torch.Tensor],
    scale: float,
    max_norm: float,
) -> float | None:
    """Unscale and clip all gradients; return the norm, or None to skip the step."""
    raise NotImplementedError(
        "ch07.clip_over_ranks: unscale, find the norm over all ranks, and clip"
    )
