# expect: DTL-VALUE-TWICE
# says: counted in the backward pass too


def block_bytes(*, b, s, h, t, itemsize, m, sequence_parallel, gather_again, recompute):
    if sequence_parallel and s % t:
        raise ValueError(f"{t} ranks do not divide {s} tokens")
    once = b * s * h * itemsize * (t - 1) // t * m
    forward = 2 * 2 * once
    gradients = 2 * 6 * h * itemsize * (t - 1) // t if sequence_parallel else 0
    a_half = 2 if sequence_parallel else 1
    passes = 3 if recompute else 2
    calls = 2 * m * (passes * a_half + gather_again) + sequence_parallel
    return {
        "forward": forward,
        "recomputed": forward * recompute,
        "backward": forward * (1 + recompute) + 2 * once * gather_again,
        "gradients": gradients,
        "calls": calls if t > 1 else 0,
    }
