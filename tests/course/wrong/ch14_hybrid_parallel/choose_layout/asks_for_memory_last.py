# expect: DTL-DIFFICULTY
# says: needs more than capacity is not allowed


def choose_layout(layers, heads, batch, num_gpus, node, capacity, memory, stage_time, reduce_time):
    """Looks whether the fastest one fits, and has no other one."""
    steps = {}
    for tp in (n for n in range(1, node + 1) if node % n == 0 and heads % n == 0):
        for pp in (n for n in range(1, layers + 1) if layers % n == 0 and num_gpus % (tp * n) == 0):
            dp = num_gpus // (tp * pp)
            for microbatch in (n for n in range(1, batch // dp + 1) if batch % (dp * n) == 0):
                m = batch // (dp * microbatch)
                layout = (tp, pp, dp, microbatch)
                steps[layout] = (m + pp - 1) * stage_time(*layout) + reduce_time(*layout)
    fastest = min(steps, key=lambda layout: (steps[layout], layout))
    return fastest if memory(*fastest) <= capacity else None
