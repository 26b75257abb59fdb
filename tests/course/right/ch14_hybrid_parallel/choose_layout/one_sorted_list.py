from itertools import product


def divisors(n):
    return [k for k in range(1, n + 1) if not n % k]


def choose_layout(layers, heads, batch, num_gpus, node, capacity, memory, stage_time, reduce_time):
    """All products of divisors, the best of those that are allowed."""
    best = None
    for microbatch, tp, pp in product(divisors(batch), divisors(node), divisors(layers)):
        dp, idle = divmod(num_gpus, tp * pp)
        m, left = divmod(batch, dp * microbatch) if dp else (0, 1)
        if idle or left or heads % tp or m == 0:
            continue
        if memory(tp, pp, dp, microbatch) > capacity:
            continue
        turn = stage_time(tp=tp, pp=pp, dp=dp, microbatch=microbatch)
        ends = reduce_time(tp, pp, dp, microbatch) + turn * m
        for _ in range(pp - 1):
            ends += turn
        found = (ends, tp, pp, microbatch, dp)
        best = found if best is None else min(best, found)
    if best is None:
        return None
    _, tp, pp, microbatch, dp = best
    return tp, pp, dp, microbatch
