# ch11.validator: edit this file, then run `dtlearn grade ch11.validator`.
"""Find everything that is wrong with a schedule before it runs.

**Given**

- `orders`: for each rank, the list of its actions, in the order in which it does them. An action is a tuple
  `(stage, op, microbatch)`.
- `placement`: `placement[stage]` is the rank that holds this stage; stages count from 0.
- `num_microbatches`, which count from 0, too.
- `ops`: the ops of the schedule. Each stage does each op once for each micro-batch. `("F", "B")` are a
  forward and a backward pass; in `("F", "I", "W")` the backward pass is split into `"I"`, the gradient of the stage's
  input, and `"W"`, the gradients of its weights.

**Return** a dict. The first four entries are lists of actions, each action once, in any order:

| key | what it holds |
|---|---|
| `"unknown"` | actions in `orders` with an op, a stage or a micro-batch that does not exist |
| `"missing"` | actions that are in no rank's order |
| `"repeated"` | actions that occur in `orders` more than once, in one rank's order or in several |
| `"misplaced"` | actions in the order of a rank that does not hold the stage |
| `"stuck"` | a list with an entry for each rank: the action at which it waits forever, or `None` |
| `"circle"` | the ranks that wait in a circle, in ascending order |

An unknown action is in no other list. If one of the first four lists is not empty, report no stuck ranks (all
`None`) and no circle: those faults have to be repaired first.

**Stuck.** Each rank does its actions in its order, and waits at one until what it needs is done:

| action | needs |
|---|---|
| F of stage s | F of stage s - 1, same micro-batch; nothing if s is 0 |
| B (or I) of stage s | F of stage s, and B (or I) of stage s + 1, if there is one; same micro-batch |
| W of stage s | I of stage s, same micro-batch |

**Circle.** A stuck rank waits for the ranks that hold the stages of the actions it still needs. That may be the
rank itself, if such an action comes later in its own order. A rank is in a circle if following who waits for
whom leads back to it, perhaps through other ranks. A rank that only waits for ranks of a circle is stuck, but
not in the circle.

**Example** with two stages on two ranks, two micro-batches and the ops F and B; 1F0 is `(1, "F", 0)`:

| `orders[0]` | `orders[1]` | what is not empty |
|---|---|---|
| 0F0 0B0 0F1 0B1 | 1F0 1F1 1B0 1B1 | `"stuck": [(0, "B", 0), (1, "F", 1)]`, `"circle": [0, 1]` |
| 0F0 0F1 0B0 0B1 | 1F0 1B0 1B1 1F1 | `"stuck": [(0, "B", 1), (1, "B", 1)]`, `"circle": [1]` |
| 0F0 0F1 0B0 | 1F0 1B0 1F1 1B0 | `"missing": [(0, "B", 1), (1, "B", 1)]`, `"repeated": [(1, "B", 0)]` |
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

Action = tuple[int, str, int]


def validator(
    orders: list[list[Action]], placement: Sequence[int], num_microbatches: int, ops: Sequence[str]
) -> dict[str, list[Any]]:
    """Return what is wrong, by kind."""
    raise NotImplementedError(
        "ch11.validator: compare with the actions that there should be; run the "
        "orders; follow who waits for whom"
    )
