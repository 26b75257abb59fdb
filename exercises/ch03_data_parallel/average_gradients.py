# ch03.average_gradients: edit this file, then run `dtlearn grade ch03.average_gradients`.
"""The heart of data parallelism: replace every gradient by its mean over the ranks.

Comes in: `model`, after backward() on this rank's own data. Every rank has the same parameters in
the same order; all of them, and all gradients, are float32.

Goes out: nothing is returned. Afterwards the `.grad` of each parameter is the mean over all N ranks,
the same on every rank. The parameters themselves stay as they are: the optimizer changes them later.

Some gradients are None:
    - on some ranks only, because this rank's data did not use the parameter. There it counts as
      zero, and gets the mean like the others: otherwise the ranks' models would drift apart. The
      mean is over all N ranks, not over those that used it.
    - on all ranks: the parameter is frozen, or nobody used it. Then it stays None everywhere: an
      optimizer skips None, but momentum and weight decay move a parameter whose gradient is zero.

Example with 2 ranks:
    a: rank 0 has [2., 4.], rank 1 has [6., 0.]     both end with [4., 2.]
    b: rank 0 has None, rank 1 has [3.]             both end with [1.5]
    c: None on both                                 stays None

`requires_grad` is the same on all ranks, but whether a gradient is None is not: do not decide by it
whether to call a collective.

Budget, per rank: calls: good 7, one for each of the 6 parameters and one more; optimal 2. Bytes: 8
for each parameter, and the size of all parameters that are not frozen.
"""

import torch
import torch.distributed as dist
from torch import nn


def average_gradients(model: nn.Module) -> None:
    """Replace each gradient by its mean over the ranks, in place."""
    raise NotImplementedError(
        "ch03.average_gradients: average what all ranks have, also where this rank has "
        "nothing"
    )
