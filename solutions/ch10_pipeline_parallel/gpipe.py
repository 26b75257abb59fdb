"""What does each rank of a pipeline do in GPipe's schedule, if memory is for a few micro-batches only?

A batch is cut into m micro-batches. Rank r holds stage r of the model, and makes a forward and a
backward pass of its stage for each micro-batch. In **GPipe's schedule** it first makes the forward
passes of all micro-batches, then all backward passes. So all of them are **live** at once: a
micro-batch takes memory from its forward pass until its backward pass.

Here at most `most_live` of them may be live on a rank. So GPipe's schedule is made for the first ones, as many as
may be live, then for the next ones, and so on; the last time there may be fewer. The order of the
micro-batches is always 0, 1, 2, ..., in the forward passes and in the backward passes. (In the paper's figure the
backward passes begin with the last micro-batch.)

**Given**, all of them whole numbers: `rank`; `num_ranks`, p, 1 or more; `num_microbatches`, m, 1 or more;
`most_live`, 1 or more, perhaps more than m.

**Return** that rank's actions in order: a list, or `yield` them one by one. An action is a tuple
`(stage, op, microbatch)`, where `op` is `"F"` for forward or `"B"` for backward; it is written 2F0 for
short.

**Example** with p = 2, m = 3 and at most 2 live:

| rank | actions |
|---|---|
| 0 | 0F0 0F1 0B0 0B1 0F2 0B2 |
| 1 | 1F0 1F1 1B0 1B1 1F2 1B2 |

so rank 1's first action is `(1, "F", 0)`.
"""

from collections.abc import Iterator


def gpipe(rank: int, num_ranks: int, num_microbatches: int, most_live: int) -> Iterator[tuple[int, str, int]]:
    """Yield the actions of a rank."""
    # BEGIN SOLUTION: yield the forward and the backward passes, a few micro-batches at a time
    for start in range(0, num_microbatches, most_live):
        end = min(start + most_live, num_microbatches)
        for op in "FB":
            for microbatch in range(start, end):
                yield rank, op, microbatch
    # END SOLUTION
