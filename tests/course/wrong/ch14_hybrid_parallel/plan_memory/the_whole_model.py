# expect: DTL-DIFFICULTY
# says: a stage has its part of the blocks


def plan_memory(
    layers, hidden, heads, vocabulary, length, batch, *, tp, pp, dp, microbatch, zero, recompute, sequence_parallel
):
    """Counts the model, and divides by all ranks of it."""
    numbers = layers * (12 * hidden**2 + 13 * hidden) + vocabulary * hidden + 2 * hidden
    numbers //= tp * pp
    share = -(-numbers // dp)
    block = length * microbatch * hidden * (34 + 5 * heads * length / hidden)
    if recompute == "selective":
        block = length * microbatch * hidden * 34
    if recompute == "full":
        block = 2 * length * microbatch * hidden
    return {
        "parameters": 2 * (share if zero == 3 else numbers),
        "gradients": 4 * (share if zero >= 2 else numbers),
        "optimizer": 12 * (share if zero >= 1 else numbers),
        "activations": int(layers * block / tp),
    }
