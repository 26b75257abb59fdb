# ch10.one_f_one_b: edit this file, then run `dtlearn grade ch10.one_f_one_b`.
"""What does each rank of a pipeline do in the 1F1B schedule?

A micro-batch is **live** on a rank from its forward pass there until its backward pass there. During that
time its activations take memory. In GPipe's schedule all m micro-batches are live at once. In **1F1B**, one
forward, one backward, it is at most p - r of them on rank r, as many as there are ranks from r to the
last. The bubble is the same.

A rank first makes forward passes, until as many micro-batches are live as may be, or all. Then it makes
backward and forward passes in turn, and at the end the backward passes that are left. (Other texts end the
warm-up one forward pass earlier and call that pass the first of a pair, F and then B. The order is the same.)
Forward passes begin with micro-batch 0, and so do backward passes.

**Given**, all of them whole numbers: `rank`, r; `num_ranks`, p, 1 or more; `num_microbatches`, m, 1 or more
and perhaps fewer than p. Rank r holds stage r.

**Return** that rank's actions in order: a list, or `yield` them one by one. An action is a tuple
`(stage, op, microbatch)`, where `op` is `"F"` or `"B"`; it is written 2F0 for short.

**Example** with p = 3 and m = 4:

| rank | actions | most live |
|---|---|---|
| 0 | 0F0 0F1 0F2 0B0 0F3 0B1 0B2 0B3 | 3 |
| 1 | 1F0 1F1 1B0 1F2 1B1 1F3 1B2 1B3 | 2 |
| 2 | 2F0 2B0 2F1 2B1 2F2 2B2 2F3 2B3 | 1 |
"""

from collections.abc import Iterator


def one_f_one_b(rank: int, num_ranks: int, num_microbatches: int) -> Iterator[tuple[int, str, int]]:
    """Yield the actions of a rank."""
    raise NotImplementedError(
        "ch10.one_f_one_b: warm up; one forward, one backward; cool down"
    )
