"""Decide on all ranks together whether a step is skipped.

Each rank holds a part of the model, and has the gradients of that part. (How a model is divided is the
subject of chapters 9 to 12.) A scaled gradient that is too large for float16 becomes infinite, or NaN
further on. One rank may see that alone. If it alone skips the step, the parts of the model are no
longer of the same step, and the ranks' loss scales differ from then on.

**Given** `gradients`, this rank's list of float32 tensors of any shapes; a tensor may have no elements.
An entry is `None` where a parameter has no gradient. Ranks have lists of different lengths; a rank's
list may be empty.

**Return** a `bool`, the same on all ranks: `True` if on any rank any value is infinite, of either
sign, or NaN. All other values are finite numbers, even if they are large.

**Example** with 2 ranks:

| rank 0 | rank 1 | returns, on both |
|---|---|---|
| `[1., 2.]`, `[3.]` | `[4.]` | `False` |
| `[1., 2.]`, `[3.]` | `[-inf]` | `True` |
| `None` | `[3e38, 3e38]` | `False` |

**Rules**: the gradients stay as they are. Ranks learn of each other through `torch.distributed` only.

**Budget**, per rank: 2 calls and 8 bytes are good; 1 call and 4 bytes, one float32 number, are
optimal. An answer that sends more, such as pickled objects, passes without a tier.
"""

from collections.abc import Sequence

import torch
import torch.distributed as dist


def agree_on_overflow(gradients: Sequence[torch.Tensor | None]) -> bool:
    """Return whether any gradient on any rank is infinite or NaN."""
    # BEGIN SOLUTION: look at this rank's gradients, then ask the others
    overflow = torch.zeros(())
    for gradient in gradients:
        if gradient is not None and not gradient.isfinite().all():
            overflow = torch.ones(())
    dist.all_reduce(overflow, op=dist.ReduceOp.MAX)
    return overflow.item() > 0
    # END SOLUTION
