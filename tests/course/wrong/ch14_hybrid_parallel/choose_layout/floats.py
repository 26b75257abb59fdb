# expect: DTL-VALUE-TYPE
# says: Sizes are whole numbers

from collections.abc import Callable

Cost = Callable[[int, int, int, int], int]


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
    steps = {}
    for tp in (n for n in range(1, node + 1) if node % n == 0 and heads % n == 0):
        for pp in (n for n in range(1, layers + 1) if layers % n == 0 and num_gpus % (tp * n) == 0):
            dp = num_gpus // (tp * pp)
            for microbatch in (n for n in range(1, batch // dp + 1) if batch % (dp * n) == 0):
                layout = (tp, pp, dp, microbatch)
                if memory(*layout) <= capacity:
                    m = batch // (dp * microbatch)
                    steps[layout] = (m + pp - 1) * stage_time(*layout) + reduce_time(*layout)
    best = min(steps, key=lambda layout: (steps[layout], layout), default=None)
    return best and (*best[:2], num_gpus / (best[0] * best[1]), best[3])
