# expect: DTL-DIFFICULTY
# says: as many micro-batches in flight as there are stages


def plan_memory(
    layers, hidden, heads, vocabulary, length, batch, *, tp, pp, dp, microbatch, zero, recompute, sequence_parallel
):
    """Counts the last stage, which has the head and one micro-batch in flight."""
    blocks = layers // pp
    numbers = blocks * ((12 * hidden**2 + 7 * hidden) // tp + 6 * hidden) + vocabulary * hidden // tp + 2 * hidden
    share = -(-numbers // dp)
    sbh = length * microbatch * hidden
    scores = 5 * heads * length**2 * microbatch // tp
    around = tp if sequence_parallel else 1
    whole = 24 * sbh // tp + scores + 10 * sbh // around
    held = {"none": whole, "selective": whole - scores, "full": 2 * sbh // around}[recompute]
    return {
        "parameters": 2 * (share if zero >= 3 else numbers),
        "gradients": 4 * (share if zero >= 2 else numbers),
        "optimizer": 12 * (share if zero >= 1 else numbers),
        "activations": blocks * held + whole - held,
    }
