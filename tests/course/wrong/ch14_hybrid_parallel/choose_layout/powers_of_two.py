# expect: DTL-DIFFICULTY
# says: a divisor need not be a power of two


def choose_layout(layers, heads, batch, num_gpus, node, capacity, memory, stage_time, reduce_time):
    """Tries powers of two only."""
    powers, steps = [2**k for k in range(12)], {}
    for tp in powers:
        for pp in powers:
            for dp in powers:
                for microbatch in powers:
                    if tp * pp * dp != num_gpus or heads % tp or node % tp or layers % pp or batch % (dp * microbatch):
                        continue
                    layout = tp, pp, dp, microbatch
                    if memory(*layout) <= capacity:
                        turns = batch // (dp * microbatch) + pp - 1
                        steps[layout] = turns * stage_time(*layout) + reduce_time(*layout)
    return min(steps, key=lambda layout: (steps[layout], layout)) if steps else None
