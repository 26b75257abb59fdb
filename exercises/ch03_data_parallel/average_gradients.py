# ch03.average_gradients: edit this file, then run `dtlearn grade ch03.average_gradients`.
"""Replace every gradient by its mean over all ranks.

**Given** `model`, after `backward()` on this rank's own data. All ranks have the same parameters in
the same order; parameters and gradients are float32.

**Return** nothing. Afterwards each `.grad` holds the mean over all N ranks. The parameters do not
change.

A gradient may be `None`:

- on some ranks only: these ranks' data did not use the parameter. There it counts as zero, and the
  rank gets the mean like all others. Divide by N, not by the number of ranks that have a gradient.
- on all ranks: the parameter is frozen or unused. It stays `None` everywhere, because an optimizer
  skips `None`, but momentum and weight decay move a parameter whose gradient is zero.

**Example** with 2 ranks:

| gradient of | rank 0 | rank 1 | afterwards, on both |
|---|---|---|---|
| `a` | `[2., 4.]` | `[6., 0.]` | `[4., 2.]` |
| `b` | `None` | `[3.]` | `[1.5]` |
| `c` | `None` | `None` | `None` |

**Beware**: whether a gradient is `None` differs between ranks (`requires_grad` does not). If that
decides whether a rank makes a collective call, the ranks no longer make the same calls.

**Budget**, per rank: 7 calls are good (one for each of the 6 parameters, and one more), 2 are
optimal. Bytes: 8 per parameter, plus the size of all parameters that are not frozen.
"""

import torch
import torch.distributed as dist
from torch import nn


def average_gradients(model: nn.Module) -> None:
    """Replace each gradient by its mean over the ranks."""
    raise NotImplementedError(
        "ch03.average_gradients: average what all ranks have, also where this rank has "
        "nothing"
    )
