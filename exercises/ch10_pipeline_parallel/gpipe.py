# ch10.gpipe: edit this file, then run `dtlearn grade ch10.gpipe`.
"""What does each rank of a pipeline do in GPipe's schedule?

A batch is cut into m micro-batches. Rank r holds stage r of the model, and makes a forward and a
backward pass of its stage for each micro-batch. In **GPipe's schedule** it first makes the forward
passes of all micro-batches, then all backward passes; both begin with micro-batch 0.

A schedule gives an order and no times: a rank begins an action when it is done with the one
before, and when what it needs has come from its neighbour.

**Given**, all of them whole numbers: `rank`; `num_ranks`, p, 1 or more; `num_microbatches`, m, 1 or more.

**Return** that rank's actions in order: a list, or `yield` them one by one. An action is a tuple
`(stage, op, microbatch)`, where `op` is `"F"` for forward or `"B"` for backward; it is written 2F0 for
short.

**Example** with p = 2 and m = 3:

| rank | actions |
|---|---|
| 0 | 0F0 0F1 0F2 0B0 0B1 0B2 |
| 1 | 1F0 1F1 1F2 1B0 1B1 1B2 |

so rank 1's first action is `(1, "F", 0)`.
"""

from collections.abc import Iterator


def gpipe(rank: int, num_ranks: int, num_microbatches: int) -> Iterator[tuple[int, str, int]]:
    """Yield the actions of a rank."""
    raise NotImplementedError("ch10.gpipe: yield the forward and the backward passes")
