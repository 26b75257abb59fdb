# expect: DTL-MISTAKE
# says: the head is counted beside the embedding


def plan_memory(
    layers, hidden, heads, vocabulary, length, batch, *, tp, pp, dp, microbatch, zero, recompute, sequence_parallel
):
    h, own = hidden, {"embedding": vocabulary * hidden // tp}
    for i in range(layers // pp):
        own[f"matrices {i}"] = 12 * h * h // tp + 7 * h // tp
        own[f"norms {i}"] = 6 * h
    if pp == 1:
        own["norm"], own["head"] = 2 * h, h * vocabulary // tp
    numbers = sum(own.values())
    share = (numbers + dp - 1) // dp
    sbh, outside = length * microbatch * h, tp if sequence_parallel else 1
    squares = 5 * heads * length * length * microbatch // tp
    block = 24 * sbh // tp + 10 * sbh // outside + squares
    dropped = {"none": 0, "selective": squares, "full": block - 2 * sbh // outside}[recompute]
    m = batch // dp // microbatch
    return {
        "parameters": 2 * (share if zero > 2 else numbers),
        "gradients": 4 * (share if zero > 1 else numbers),
        "optimizer": 12 * (share if zero > 0 else numbers),
        "activations": (m if m < pp else pp) * (layers // pp) * (block - dropped) + dropped,
    }
