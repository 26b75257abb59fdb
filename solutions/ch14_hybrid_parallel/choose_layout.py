"""Choose the fastest layout that fits.

A cluster of `num_gpus` GPUs, `node` of them in each node, is to train a model with tensor parallelism inside the
nodes, a pipeline, and replicas. Which tp x pp x dp, and which micro-batch?

**Given**, whole numbers: `layers`, `heads` and `batch` (sequences of a step) of the model; `num_gpus`, `node`;
`capacity`, bytes of a GPU. And three functions of `(tp, pp, dp, microbatch)`, which return whole numbers:

- `memory`: bytes of the fullest rank;
- `stage_time`: microseconds that a stage takes for one micro-batch, forward and backward;
- `reduce_time`: microseconds of what replicas exchange in a step, behind the last backward pass.

A layout is allowed if

1. tp x pp x dp is all GPUs;
2. tp divides the heads, and it divides `node`, so that each tensor-parallel group lies in one node;
3. pp divides the layers: all stages have as many;
4. dp x microbatch divides the batch, and leaves m micro-batches to each pipeline;
5. the fullest rank needs `capacity` bytes, or less.

With m micro-batches in pp stages a step takes (m + pp - 1) x `stage_time` + `reduce_time`: the bubble is pp - 1
more turns of a stage.

**Return** the allowed layout with the shortest step as a tuple `(tp, pp, dp, microbatch)`. If several are equally
fast, take the one with the smallest tp; among these that with the smallest pp, then with the smallest micro-batch.
If no layout is allowed, return `None`.

**Example**: `layers` = 2, `heads` = 2, `batch` = 2, `num_gpus` = 2, `node` = 2, `capacity` = 12.

| tp, pp, dp, microbatch | memory | stage_time | reduce_time | m | step |
|---|---|---|---|---|---|
| 1, 1, 2, 1 | 16: too much | | | | |
| 1, 2, 1, 1 | 10 | 40 | 0 | 2 | 3 x 40 = 120 |
| 1, 2, 1, 2 | 10 | 70 | 0 | 1 | 2 x 70 = 140 |
| 2, 1, 1, 1 | 8 | 60 | 0 | 2 | 2 x 60 = 120 |
| 2, 1, 1, 2 | 10 | 100 | 0 | 1 | 1 x 100 = 100 |

The result is `(2, 1, 1, 2)`.

**Rule**: no communication.
"""

from collections.abc import Callable

Cost = Callable[[int, int, int, int], int]  # of (tp, pp, dp, microbatch)


def choose_layout(
    layers: int,
    heads: int,
    batch: int,
    num_gpus: int,
    node: int,
    capacity: int,
    memory: Cost,
    stage_time: Cost,
    reduce_time: Cost,
) -> tuple[int, int, int, int] | None:
    """Return (tp, pp, dp, microbatch) of the fastest layout that fits, or None."""
    # BEGIN SOLUTION: go through all layouts, leave out what is not allowed, and keep the fastest
    steps = {}
    for tp in (n for n in range(1, node + 1) if node % n == 0 and heads % n == 0):
        for pp in (n for n in range(1, layers + 1) if layers % n == 0 and num_gpus % (tp * n) == 0):
            dp = num_gpus // (tp * pp)
            for microbatch in (n for n in range(1, batch // dp + 1) if batch % (dp * n) == 0):
                layout = (tp, pp, dp, microbatch)
                if memory(*layout) <= capacity:
                    m = batch // (dp * microbatch)
                    steps[layout] = (m + pp - 1) * stage_time(*layout) + reduce_time(*layout)
    return min(steps, key=lambda layout: (steps[layout], layout), default=None)
    # END SOLUTION
