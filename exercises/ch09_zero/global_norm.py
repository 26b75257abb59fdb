# ch09.global_norm: edit this file, then run `dtlearn grade ch09.global_norm`.
"""Clip sharded gradients by the norm of the whole gradient.

The gradient of the model is one long vector, of which each rank has a part. Afterwards it should be
what `torch.nn.utils.clip_grad_norm_` makes of it on one process that has all of it.

**Given**

- `shards`, a list of vectors that are this rank's shards, each with a float32 `.grad` of its length;
- `used`, as many whole numbers: the first `used[i]` elements of `shards[i]` are parameters, and the
  rest is **padding**. The gradient of padding is what happened to be in memory, also NaN. It may be all
  of a shard;
- `replicated`, a list of parameters that every rank of the group has whole, with the same `.grad`;
- `max_norm`; and `group`, the ranks that have one model between them, or `None` for all ranks.
  Other groups have other models.

A `.grad` may be `None`. A rank may have no shards. Two layers may share a parameter: then **the same
object stands twice in `shards`**, and is one part of the gradient all the same. The same holds for
`replicated`.

**Return** the norm before clipping, as a float, the same on all ranks of the group: the square root of
the sum of the squares of all elements of the gradient, each counted once. Afterwards the gradients of
all parameters are multiplied by `max_norm / (norm + 1e-6)`, if that is below 1. What is in the padding
afterwards does not matter.

If an element of the gradient is infinite or NaN, on any rank, the norm is infinite or NaN: return it
on all ranks. What is in the gradients no longer matters then.

**Example** with 2 ranks and `max_norm` 1. The norm is 5, the square root of 9 + 4 + 8 + 4.

| | rank 0 | rank 1 |
|---|---|---|
| gradient of `shards[0]` | `[3., 2.]` | `[2.8284, nan]` |
| `used` | `[2]` | `[1]` |
| gradient of `replicated[0]` | `[2.]` | `[2.]` |
| afterwards, `shards[0]` | `[0.6, 0.4]` | `[0.5657, ...]` |
| afterwards, `replicated[0]` | `[0.4]` | `[0.4]` |
| returns | 5 | 5 |

**Rule**: ranks learn of each other through `torch.distributed` only.

**Budget**, per rank: 2 calls and 8 bytes are good; 1 call and 4 bytes are optimal. An answer that sends
more passes without a tier.
"""

from collections.abc import Sequence

import torch
import torch.distributed as dist


def global_norm(
    shards: Sequence[torch.Tensor],
    used: Sequence[int],
    replicated: Sequence[torch.Tensor],
    max_norm: float,
    group: dist.ProcessGroup | None = None,
) -> float:
    """Clip all gradients; return the norm that they had together."""
    raise NotImplementedError(
        "ch09.global_norm: find the norm over the ranks of the group, and scale"
    )
