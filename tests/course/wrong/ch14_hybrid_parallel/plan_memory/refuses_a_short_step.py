# expect: DTL-RAISED
# says: it was called with


def plan_memory(
    layers, hidden, heads, vocabulary, length, batch, *, tp, pp, dp, microbatch, zero, recompute, sequence_parallel
):
    blocks, m = layers // pp, batch // (dp * microbatch)
    if m < pp:
        raise ValueError(f"{m} micro-batches do not fill {pp} stages")
    numbers = blocks * ((12 * hidden**2 + 7 * hidden) // tp + 6 * hidden) + vocabulary * hidden // tp
    numbers += 2 * hidden * (pp == 1)
    share = -(-numbers // dp)
    sbh = length * microbatch * hidden
    scores = 5 * heads * length**2 * microbatch // tp
    around = tp if sequence_parallel else 1
    whole = 24 * sbh // tp + scores + 10 * sbh // around
    held = {"none": whole, "selective": whole - scores, "full": 2 * sbh // around}[recompute]
    made = {"activations": pp * blocks * held + whole - held}
    for name, size, stage in ("parameters", 2, 3), ("gradients", 4, 2), ("optimizer", 12, 1):
        made[name] = size * (share if zero >= stage else numbers)
    return made
