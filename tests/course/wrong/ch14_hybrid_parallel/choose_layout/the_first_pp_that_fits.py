# expect: DTL-VALUE
# says: [0] should be 1; it is 2


def choose_layout(layers, heads, batch, num_gpus, node, capacity, memory, stage_time, reduce_time):
    """Compare, for each tp, only the layouts with the smallest pp that fits."""
    best = None
    for tp in (k for k in range(1, node + 1) if node % k == heads % k == num_gpus % k == 0):
        for pp in (k for k in range(1, layers + 1) if layers % k == num_gpus // tp % k == 0):
            dp, rows = num_gpus // (tp * pp), []
            for b in (k for k in range(1, batch // dp + 1) if batch % (dp * k) == 0):
                if memory(tp, pp, dp, b) <= capacity:
                    turns = batch // (dp * b) + pp - 1
                    rows.append((turns * stage_time(tp, pp, dp, b) + reduce_time(tp, pp, dp, b), tp, pp, b, dp))
            if rows:
                best = min(rows) if best is None else min(best, *rows)
                break
    return best and (best[1], best[2], best[4], best[3])
