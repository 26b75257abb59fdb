# expect: DTL-VALUE-MICROBATCHES
# says: tokens are gathered again for one micro-batch only


def block_bytes(*, b, s, h, t, itemsize, m, sequence_parallel, gather_again, recompute):
    if sequence_parallel and s % t:
        raise ValueError(f"{s} tokens on {t} ranks")
    if t == 1:
        return dict(forward=0, recomputed=0, backward=0, gradients=0, calls=0)
    one = b * s * h * itemsize * (t - 1) // t  # all-gather or reduce-scatter
    forward = m * 4 * one
    per_pass = 4 if sequence_parallel else 2
    backward, calls = forward, m * 2 * per_pass
    if gather_again:
        backward += 2 * one
        calls += 2
    recomputed = 0
    if recompute:
        recomputed = forward
        calls += m * per_pass
    gradients = 0
    if sequence_parallel:
        gradients = 2 * 6 * h * itemsize * (t - 1) // t
        calls += 1
    return dict(forward=forward, recomputed=recomputed, backward=backward, gradients=gradients, calls=calls)
