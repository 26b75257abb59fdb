# ch16.interval: edit this file, then run `dtlearn grade ch16.interval`.
"""Find the number of steps between two saves with the best goodput.

A job saves after every n steps. Failures come at random, independent of each other, `mtbf` seconds apart on
average; they also strike during saves and restarts. A failure loses all since the last save. Then the job
restarts, and begins again at that save.

A *stretch* is n steps and the save after them. One that takes s seconds if nothing fails takes, failures and
restarts included, on average (Daly 2006)

> mtbf · exp(restart / mtbf) · (exp(s / mtbf) - 1) seconds.

The *goodput* is the part of this average that went into the n steps, each counted once: 0 to 1.

**Given**, in seconds: `step`, `save`, `restart`, and `mtbf`, the mean time between failures of the whole job. You
may assume that `mtbf` is less than 100,000 steps.

**Return** a tuple: the whole number n, 1 or more, with the largest goodput, and that goodput.

**Example**: `step` = 10, `save` = 60, `restart` = 60, `mtbf` = 600.

| n | stretch | goodput |
|---|---|---|
| 1 | 70 s | 0.122 |
| 22 | 280 s | 0.5579 |
| 23 | 290 s | 0.5581 |
| 24 | 300 s | 0.5579 |
| 27 | 330 s | 0.5551 |

The result is `(23, 0.5581...)`. Young's interval (1974), √(2 · `save` · `mtbf`) = 268 s, would be 27 steps: it
holds in the limit of saves that are short against `mtbf`.

**Rules**

- Raise a `ValueError` if `step`, `save` or `mtbf` is not above 0, or `restart` is below 0.
- No communication. You use Python only; the goodput is compared to nine digits.

Sources: J. W. Young, CACM 17(9), 1974, 530-531; J. T. Daly, FGCS 22(3), 2006, 303-312.
"""

import math


def interval(step: float, save: float, restart: float, mtbf: float) -> tuple[int, float]:
    """Return the best number of steps between two saves, and its goodput."""
    raise NotImplementedError(
        "ch16.interval: refuse what is no time; find the n with the largest goodput"
    )
