# ch04.may_start: edit this file, then run `dtlearn grade ch04.may_start`.
"""Say whether a worker may start its next step under bounded staleness (SSP).

A worker's **clock** is the number of steps that it has pushed. The fastest may run ahead of the slowest,
but not farther than a bound.

**Given**

- `clocks`, a list with the clock of each worker; `None` for a worker that has left, because it is done or
  has died;
- `worker`, the number of the worker that asks: its place in `clocks`;
- `bound`, s: a whole number, 0 or more, or `math.inf`.

**Return** `True` if `worker` may start its next step now, and `False` if it has to wait.

- It may start if it is at most `bound` steps ahead of the slowest worker.
- Nobody waits for a worker that has left; and a worker that has left starts nothing.

With `bound` 0 this is a barrier after every step: synchronous training, if the server also applies the
pushes of a step together. With `math.inf` nobody ever waits.

**Example** with the clocks of three workers, and `bound` 1:

| `clocks` | worker 0 | worker 1 | worker 2 |
|---|---|---|---|
| `[1, 0, 0]` | `True`: 1 ahead | `True` | `True` |
| `[2, 0, 1]` | `False`: 2 ahead | `True` | `True` |
| `[2, None, 1]` | `True`: 1 ahead | `False`: it has left | `True` |

**Rule**: no communication. It runs on the server, which sees the clocks of all.
"""

from collections.abc import Sequence


def may_start(clocks: Sequence[int | None], worker: int, bound: float) -> bool:
    """Return whether the worker may start its next step."""
    raise NotImplementedError(
        "ch04.may_start: compare the worker's clock with the slowest of those that "
        "still train"
    )
