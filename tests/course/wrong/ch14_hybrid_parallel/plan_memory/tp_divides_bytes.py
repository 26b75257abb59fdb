# expect: DTL-DIFFICULTY
# says: what is around them stays whole


def plan_memory(
    layers, hidden, heads, vocabulary, length, batch, *, tp, pp, dp, microbatch, zero, recompute, sequence_parallel
):
    """Counts for one rank, and divides all bytes by tp at the end."""
    h, each = hidden, layers // pp
    numbers = each * (12 * h * h + 13 * h) + vocabulary * h + (2 * h if pp == 1 else 0)
    share = -(-numbers // dp)
    sbh, scores = length * microbatch * h, 5 * heads * length**2 * microbatch
    whole = 34 * sbh + scores
    held = whole - scores if recompute == "selective" else 2 * sbh if recompute == "full" else whole
    alive = min(pp, batch // dp // microbatch)
    made = {
        "parameters": 2 * (share if zero > 2 else numbers),
        "gradients": 4 * (share if zero > 1 else numbers),
        "optimizer": 12 * (share if zero > 0 else numbers),
        "activations": alive * each * held + whole - held,
    }
    return {name: size // tp for name, size in made.items()}
