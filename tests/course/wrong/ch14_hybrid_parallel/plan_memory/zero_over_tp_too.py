# expect: DTL-DIFFICULTY
# says: the parts of the formula hold together
# says: the result['optimizer']


def plan_memory(
    layers: int,
    hidden: int,
    heads: int,
    vocabulary: int,
    length: int,
    batch: int,
    *,
    tp: int,
    pp: int,
    dp: int,
    microbatch: int,
    zero: int,
    recompute: str,
    sequence_parallel: bool,
) -> dict[str, int]:
    """Return the bytes of a rank of the first stage, by category."""
    blocks = layers // pp
    block = (12 * hidden**2 + 7 * hidden) // tp + 6 * hidden
    numbers = blocks * block + vocabulary * hidden // tp + (2 * hidden if pp == 1 else 0)
    share = -(-numbers // dp)
    sbh = length * microbatch * hidden
    scores = 5 * heads * length**2 * microbatch // tp
    around = tp if sequence_parallel else 1
    whole = 24 * sbh // tp + scores + 10 * sbh // around
    held = {"none": whole, "selective": whole - scores, "full": 2 * sbh // around}[recompute]
    in_flight = min(pp, batch // (dp * microbatch))
    return {
        "parameters": 2 * (share if zero >= 3 else numbers),
        "gradients": 4 * ((share if zero == 3 else -(-share // tp)) if zero >= 2 else numbers),
        "optimizer": 12 * ((share if zero == 3 else -(-share // tp)) if zero >= 1 else numbers),
        "activations": in_flight * blocks * held + whole - held,
    }
