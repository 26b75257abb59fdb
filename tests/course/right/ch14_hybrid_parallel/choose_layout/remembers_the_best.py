def choose_layout(layers, heads, batch, num_gpus, node, capacity, memory, stage_time, reduce_time):
    """From the largest layouts down, so that of equals the last one counts."""
    best, shortest = None, float("inf")
    for tp in range(min(heads, node), 0, -1):
        if heads % tp or node % tp or num_gpus % tp:
            continue
        for pp in range(min(layers, num_gpus // tp), 0, -1):
            if layers % pp or num_gpus % (tp * pp):
                continue
            dp = num_gpus // tp // pp
            if batch % dp:
                continue
            own = batch // dp
            for microbatch in range(own, 0, -1):
                layout = tp, pp, dp, microbatch
                if own % microbatch or memory(*layout) > capacity:
                    continue
                step = (own // microbatch + pp - 1) * stage_time(*layout) + reduce_time(*layout)
                if step <= shortest:
                    best, shortest = layout, step
    return best
