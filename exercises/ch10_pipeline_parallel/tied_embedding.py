# ch10.tied_embedding: edit this file, then run `dtlearn grade ch10.tied_embedding`.
"""One weight on two stages: add up the gradients of its copies.

Many language models use one matrix twice: as the token embedding, in the first stage, and as the head, in
the last. In a pipeline the two stages are on different ranks, each with a copy of its own. Autograd gives
each copy the gradient of its own use. That of the weight is the sum over all its uses, and only
with it do the copies stay equal.

**Given**, on every rank, after the backward passes:

- `copies`, the parameters on this rank that are copies of the weight: none, one, or several, where
  a rank holds several stages that use it. Each is a tensor of its own, float32 or float64, as is its
  gradient;
- `group`, the process group of the ranks that hold a copy; `None` where no other rank does, and on
  ranks without a copy.

**Do**: afterwards the `.grad` of each copy is the sum over the copies of all ranks, a tensor of its own,
and **to the last bit the same on all ranks**. A copy that was not used in this step has `None` as its
gradient, which counts as zero; it gets the sum as well. At least one copy has a gradient. The
parameters themselves do not change. Nothing is returned.

**Example** with 3 ranks; the group has the ranks 0 and 2:

| | rank 0 | rank 1 | rank 2 |
|---|---|---|---|
| stages | embedding | block | block, head |
| `.grad` of its copies | `[1, 2]` | – | `[10, 0]` |
| afterwards | `[11, 2]` | – | `[11, 2]` |

**Budget**, of a step: on each rank of the group one message, with the bytes of one gradient, is optimal. A
collective counts as one message.
"""

from collections.abc import Sequence

import torch
import torch.distributed as dist


def tied_embedding(copies: Sequence[torch.nn.Parameter], group: dist.ProcessGroup | None) -> None:
    """Give each copy the sum of the gradients of all."""
    raise NotImplementedError(
        "ch10.tied_embedding: add up the gradients of this rank's copies, then those "
        "of the ranks"
    )
