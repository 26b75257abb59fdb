# expect: DTL-MISTAKE
# says: whole tensors are counted


def block_bytes(*, b, s, h, t, itemsize, m, sequence_parallel, gather_again, recompute):
    if sequence_parallel and s % t:
        raise ValueError(f"{t} ranks do not divide {s} tokens")
    halves = 2
    u = b * s * h * itemsize * (t > 1) * m
    forward = halves * 2 * u
    return {
        "forward": round(forward),
        "recomputed": round(forward * recompute),
        "backward": round(forward + halves * u * gather_again),
        "gradients": round(2 * 6 * h * itemsize * (t > 1) * sequence_parallel),
        "calls": (
            m * halves * (2 * (2 + recompute) if sequence_parallel else 2 + recompute)
            + m * halves * gather_again
            + sequence_parallel
        )
        if t > 1
        else 0,
    }
