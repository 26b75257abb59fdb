# ch15.name_the_library: edit this file, then run `dtlearn grade ch15.name_the_library`.
"""Name what ran, by what one rank sent in a step.

Each record is of a real run: PyTorch 2.13 and DeepSpeed 0.19.8, ranks on processors, the last of four steps.
Its sizes are multiplied by one factor and its ranks renumbered, so no number is worth learning by heart.

**Given**

- `calls`, a list of dicts, in the order of the calls: `"op"`, the name in `torch.distributed`; `"group"`, the ranks,
  as `"0,2"`; `"nbytes"` that this rank handed in, and their `"dtype"`; `"phase"`: `"forward"` and `"backward"` are
  the passes, and `""` is before, between and after them;
- `num_params`, the parameters of the whole model, and `micro_batches`, passes in the step.

**Return** a dict: group -> a name of this table, for each group that sent data.

| name | what it sends |
|---|---|
| `"pipeline"` | messages from one rank to another: `isend`, `irecv` |
| `"tensor parallel"` | activations: `all_reduce` in forward **and** in backward |
| `"DDP"` | gradients: `all_reduce` in backward, and in no other phase |
| `"ZeRO 0"` | gradients: `all_reduce` after the passes |
| `"FSDP2"` | units: gathered in forward, again in backward, their gradients scattered |
| `"FSDP2 without resharding"` | the same, but no gather in backward |
| `"ZeRO 1"`, `"ZeRO 2"` | gradients by `all_reduce` or by `reduce`, then new parameters gathered |
| `"ZeRO 3"` | gathers and scatters that do not fit each other |

*Gathered* is `all_gather_into_tensor`, of which each rank hands in its part; *scattered* is
`reduce_scatter_tensor`, into which each rank hands all elements. In FSDP2 both are of one unit, a layer here,
so they fit: N parts are as many elements as are scattered. ZeRO 3 gathers small parameters after the step
and large ones in the passes, each for itself, and scatters gradients in buckets of many layers.

In ZeRO 1 and 2 the gradients of a micro-batch are `num_params` elements, and perhaps a little padding. Stage 1
reduces them once a step, stage 2 for every micro-batch, for it keeps no whole gradient. With one micro-batch
nobody can tell: the name is `"ZeRO 1 or 2"`.

**Norms and flags**, such as an overflow or the norms of a clipping, are all-reduces of one number, or of one for each
parameter tensor, after the passes. They may come with any of these, and name none. Here a group with norms of
several numbers has other calls as well.

**Example**: `num_params` 3216, one micro-batch

| op | group | nbytes | dtype | phase |
|---|---|---|---|---|
| `all_reduce` | `0,1` | 12864 | float32 | |
| `all_reduce` | `0,1` | 4 | float32 | |
| `all_gather_into_tensor` | `0,1` | 6432 | float32 | |

The 3216 gradients are all-reduced, each rank steps its half, and hands 1608 parameters on:
`{"0,1": "ZeRO 1 or 2"}`.

**Rule**: no communication.
"""

from collections.abc import Sequence
from typing import Any

ITEMSIZE = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2, "uint8": 1}


def name_the_library(
    calls: Sequence[dict[str, Any]],
    num_params: int,
    micro_batches: int,
) -> dict[str, str]:
    """Return the name of each group."""
    raise NotImplementedError(
        "ch15.name_the_library: per group, drop single numbers, then let operations, "
        "phases and elements decide"
    )
