# ch16.find_straggler: edit this file, then run `dtlearn grade ch16.find_straggler`.
"""Find the rank that all wait for, why, since when, and what it costs.

A step has three phases, in this order: `"data"`, a rank waits for its samples; `"computation"`; and
`"communication"`, one all-reduce of the gradients. An all-reduce ends for all ranks together, once the last one has
arrived. So `"communication"` is the wait for the last rank, and after it the all-reduce itself. The last rank waits
for nobody.

**Given**

- `seconds`, a dict: phase -> float64 tensor (ranks, steps), what a rank recorded in a step; 2 ranks or more;
- `transfer`, seconds of the all-reduce itself on a healthy network;
- `noise`: so many seconds, or fewer, say nothing.

**Late.** A rank *arrives* in a step after data and computation. It is late by its arrival minus the last arrival of
all other ranks, so only the last rank is ever late. The network is late by the all-reduce itself minus `transfer`.

A rank, or the network, is **slow** when it is late by more than `noise` until the end of the table: in 90% or more
of the last k steps, k being 5 or more, and in the first of these. It is slow *since* the earliest step of which that
holds. There is at most one.

**Return** `None` if nobody is slow, or a dict:

- `"rank"`, a whole number; `None` for the network: an all-reduce over a slow link takes longer on every rank, so this
  table cannot tell whose link it is;
- `"phase"`: `"communication"` for the network. For a rank it is `"data"` or `"computation"`, the one in which it
  exceeds the median of all ranks by more; of these differences, take the median over the steps since it is slow;
- `"since"`, the number of that step, from 0;
- `"seconds"`, what it costs: the median lateness, over the same steps;
- `"share"`: `"seconds"` divided by the median length of these steps, from the start of data to the end of
  communication.

**Example**: milliseconds of 3 ranks in 7 steps, `transfer` 10, `noise` 15.

| phase | rank 0 | rank 1 | rank 2 |
|---|---|---|---|
| data | 20 in every step | 50, 20, 50, 50, 50, 50, 50 | 20 in every step |
| computation | 60 in every step | 60 in every step | 62 in every step |
| communication | 40, 12, 40, 40, 40, 40, 40 | 10, 12, 10, 10, 10, 10, 10 | 38, 10, 38, 38, 38, 38, 38 |

Rank 1 is late by 28, -2, 28, 28, 28, 28, 28. Since step 0 it is late in 6 of 7 steps, which is less than 90%; since
step 2 in all 5. The result is `{"rank": 1, "phase": "data", "since": 2, "seconds": 0.028, "share": 0.233}`.

**Rule**: no communication. Seconds and share are compared to within 2%, so any kind of median will do.
"""

from typing import Any

import torch


def find_straggler(
    seconds: dict[str, torch.Tensor],
    transfer: float,
    noise: float,
) -> dict[str, Any] | None:
    """Return who is slow, in which phase, since when, and what it costs; or None."""
    raise NotImplementedError(
        "ch16.find_straggler: find by how much each rank and the network are late; "
        "then who is so to the end"
    )
