# ch09.prefetch: edit this file, then run `dtlearn grade ch09.prefetch`.
"""Gather the next units' weights while this unit computes.

Under ZeRO stage 3 a rank has one N-th of each unit's weights. Before a unit computes, all ranks gather it.
A gather that is launched while the unit before still computes costs no time of its own; but each
gathered unit takes memory. So at most `depth` units are gathered ahead.

**Given** `units`, a list in the order in which they run; `depth`, 0 or more; and `x`. Each unit has

- `gather()`: launches an asynchronous all-gather of its weights, and returns an object at once. The
  `wait()` of that object returns the whole weight, a tensor. **All ranks have to launch the same
  gathers in the same order**;
- `compute(weight, x)`: returns the next `x`;
- `skipped`: if it is true, this rank does not compute the unit, and `x` stays as it is. Other ranks may
  compute it, so it is gathered and waited for here too.

**Return** the last `x`.

**Rules.** Each rank's calls are noted, and these are asked of them:

- Gather each unit once, in the order of the list, and wait for each.
- When unit i computes, the gathers of units i + 1 to i + `depth` have been launched, as far as there are
  such units.
- A gather of unit i + `depth` + 1 is launched only after unit i has computed, **and when its weight is
  freed**: no variable, list or object refers any more to it, to what its `gather()` returned, or to a
  copy or a view of it.
- Wait for unit i only after unit i - 1 has computed: while one computes, the next is on its way.

**Example** with 4 units and `depth` 1, none skipped:

| | launched | waited for | computed | freed |
|---|---|---|---|---|
| at first | 0, 1 | 0 | 0 | 0 |
| then | 2 | 1 | 1 | 1 |
| then | 3 | 2 | 2 | 2 |
| at last | | 3 | 3 | 3 |
"""

from collections import deque
from typing import Any

import torch


def prefetch(units: list[Any], depth: int, x: torch.Tensor) -> torch.Tensor:
    """Run all units, with the gathers of the next ones under way."""
    raise NotImplementedError(
        "ch09.prefetch: launch what may be launched, wait for one, compute, free"
    )
