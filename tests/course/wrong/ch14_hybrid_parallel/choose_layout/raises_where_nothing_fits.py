# expect: DTL-RAISED
# says: it was called with


def choose_layout(layers, heads, batch, num_gpus, node, capacity, memory, stage_time, reduce_time):
    rows = []
    for tp in range(1, node + 1):
        for pp in range(1, layers + 1):
            if node % tp or heads % tp or layers % pp or num_gpus % (tp * pp):
                continue
            dp = num_gpus // (tp * pp)
            for microbatch in range(1, batch // dp + 1):
                m, left = divmod(batch, dp * microbatch)
                if left == 0 and memory(tp, pp, dp, microbatch) <= capacity:
                    layout = tp, pp, dp, microbatch
                    rows.append(((m + pp - 1) * stage_time(*layout) + reduce_time(*layout), layout))
    return min(rows)[1]
