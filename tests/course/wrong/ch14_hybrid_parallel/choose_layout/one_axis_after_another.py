# expect: DTL-VALUE-NONE
# says: capacity 60'] is None


def choose_layout(layers, heads, batch, num_gpus, node, capacity, memory, stage_time, reduce_time):
    """Finds the best tp without stages, then the best pp for it, then the best micro-batch."""

    def step(tp, pp, b):
        dp, left = divmod(num_gpus, tp * pp)
        if left or batch % (dp * b) or heads % tp or node % tp or layers % pp or memory(tp, pp, dp, b) > capacity:
            return float("inf")
        return (batch // (dp * b) + pp - 1) * stage_time(tp, pp, dp, b) + reduce_time(tp, pp, dp, b)

    tp = min(range(1, node + 1), key=lambda n: step(n, 1, 1))
    pp = min(range(1, min(layers, num_gpus // tp) + 1), key=lambda n: step(tp, n, 1))
    b = min(range(1, batch + 1), key=lambda n: step(tp, pp, n))
    return (tp, pp, num_gpus // (tp * pp), b) if step(tp, pp, b) < float("inf") else None
