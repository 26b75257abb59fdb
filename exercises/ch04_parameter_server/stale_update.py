# ch04.stale_update: edit this file, then run `dtlearn grade ch04.stale_update`.
"""Apply a push whose gradient is out of date, with a smaller learning rate.

An asynchronous server applies each push as it arrives. Between a worker's pull and its push the server
has made other updates: the gradient belongs to parameters that are no longer there. The **staleness** of
a push is the number of updates that were made between its pull and its own. This server answers with a
learning rate divided by 1 + staleness.

**Given**

- `server`, with four attributes: `parameters`, a list of tensors; `optimizer`, any of `torch.optim` on
  these parameters, with one or more groups that have learning rates of their own; `version`, the number
  of updates made so far (more than 0 at the start if the server came back from a checkpoint); and `log`, a
  list with one entry for each push that this server has applied;
- `worker`, a number; `gradients`, one for each parameter, where `None` says that the worker's loss does
  not depend on it; and `pulled`, the version of the parameters that they were computed from.

**Change the server**: one step of its optimizer with these gradients, in which every group's learning
rate is divided by 1 + staleness, for this step only. A parameter whose gradient is `None` is not updated.
Then the version is one higher, and the log has one more entry, a dict with `"worker"`, `"pulled"`,
`"applied"` (the first version that has the push in it) and `"staleness"`.

**Raise** a `ValueError` whose message has both numbers if `pulled` is a version that the server does not
have yet. Nothing is changed then.

**Example**: SGD with a learning rate of 0.4. Three updates were made between the pull and the push.

| | before | afterwards |
|---|---|---|
| parameter | `[1.0, 2.0]` | `[0.9, 2.1]` |
| version | 7 | 8 |
| log | | worker 2, pulled 4, applied 8, staleness 3 |

The gradient is `[1.0, -1.0]`, and the rate of this step 0.4 / (1 + 3) = 0.1.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch


@dataclass
class Server:
    """What an asynchronous server keeps."""

    parameters: list[torch.Tensor]
    optimizer: torch.optim.Optimizer
    version: int = 0
    log: list[dict[str, int]] = field(default_factory=list)


def stale_update(server: Server, worker: int, gradients: Sequence[torch.Tensor | None], pulled: int) -> None:
    """Apply one push, by its staleness."""
    raise NotImplementedError(
        "ch04.stale_update: refuse, count the staleness, step with smaller rates, "
        "write the log"
    )
