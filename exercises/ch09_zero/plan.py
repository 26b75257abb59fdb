# ch09.plan: edit this file, then run `dtlearn grade ch09.plan`.
"""Plan training with ZeRO for a model, a GPU and a number of ranks that you do not have.

The model is trained in mixed precision with Adam: for each parameter 2 bytes of weight, 2 bytes of
gradient and 12 bytes that only the optimizer needs (float32 master, two moments). Its layers are
grouped into units. The parameters of a unit lie in a flat buffer that is **padded to a multiple of
the N ranks, in every stage**; of what is divided, a rank holds one N-th of each buffer.

**Given**, all of them whole numbers:

- `units`: the number of parameters of each unit, in the order in which they run; `num_ranks`, N;
- `accumulation`, A: each rank computes gradients of A micro-batches for one step of the optimizer;
- `memory_gb`: the GPU's memory in GB, 10^9 bytes; `activation_bytes`, which is needed besides.

**Return** a dict. For each `stage` 0 to 3, under that number, a dict of bytes on one rank:

| key | in which stages it is divided by N |
|---|---|
| `"weights"` | 3 |
| `"gradients"` | 2 and 3 |
| `"optimizer"` | 1, 2 and 3 |
| `"temporary"` | not divided; see below |
| `"sent"` | what a rank sends in a step; see below |

and under `"smallest"` the smallest stage whose first four entries and the activations together fit in
the memory (exactly full fits), or `None`.

**Temporary**: in stages 2 and 3, the whole gradient of one unit, the largest, before it is reduced. In
stage 3 also the whole weights of **two units that follow one another**, of which one is in use and one
is prefetched: the two that need most (a model of one unit has that only). In stages 0 and 1 it is 0.

**Sent**: in an all-gather or a reduce-scatter of a whole buffer, a rank sends (N - 1)/N of its bytes;
an all-reduce is one of each. Weights and gradients are sent with 2 bytes each.

| stage | for each micro-batch | once a step |
|---|---|---|
| 0 | | all-reduce of the gradients |
| 1 | | reduce-scatter of the gradients, all-gather of the weights |
| 2 | reduce-scatter of the gradients | all-gather of the weights |
| 3 | all-gather of the weights, in forward and again in backward; reduce-scatter | |

**Example**: `units` [5, 7], N = 4, A = 1. With padding the buffers have 8 and 8 elements; a rank's
part of them is 4 elements.

| stage | weights | gradients | optimizer | temporary | sent |
|---|---|---|---|---|---|
| 0 | 32 | 32 | 192 | 0 | 48 |
| 1 | 32 | 32 | 48 | 0 | 48 |
| 2 | 32 | 8 | 48 | 16 | 48 |
| 3 | 8 | 8 | 48 | 16 + 32 | 72 |
"""

from itertools import pairwise
from typing import Any


def plan(units: list[int], num_ranks: int, accumulation: int, memory_gb: int, activation_bytes: int) -> dict[Any, Any]:
    """Return the bytes of each stage, and the smallest stage that fits."""
    raise NotImplementedError(
        "ch09.plan: pad, count what each stage holds and sends, and compare"
    )
