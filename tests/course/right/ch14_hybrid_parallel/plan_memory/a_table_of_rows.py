from fractions import Fraction


def plan_memory(layers, hidden, heads, vocabulary, length, batch, *, tp, pp, dp, microbatch, zero, recompute, **more):
    """One row for each kind of tensor: (how often, numbers or bytes of one, whether tp divides it)."""
    tokens, each = length * microbatch, layers // pp
    weights = [(each, 12 * hidden * hidden, True), (each, 7 * hidden, True), (each, 6 * hidden, False)]
    weights.append((1, vocabulary * hidden, True))
    if pp == 1:
        weights.append((2, hidden, False))
    total = sum(often * size // (tp if divided else 1) for often, size, divided in weights)
    piece, left = divmod(total, dp)
    piece += left > 0
    made = {}
    for name, size, stage in ("parameters", 2, 3), ("gradients", 4, 2), ("optimizer", 12, 1):
        made[name] = (piece if stage <= zero else total) * size

    by_tokens = more["sequence_parallel"]
    rows = {
        "input": (2, by_tokens),
        "around": (8, by_tokens),
        "inside": (24, True),
        "scores": (Fraction(5 * heads * length, hidden), True),
    }
    dropped = {"none": [], "selective": ["scores"], "full": ["around", "inside", "scores"]}[recompute]
    pipeline = batch / dp / microbatch
    activations = 0
    for name, (times, divided) in rows.items():
        size = tokens * hidden * times / Fraction(tp if divided else 1)
        activations += size if name in dropped else size * each * (pp if pipeline > pp else int(pipeline))
    return {**made, "activations": int(activations)}
