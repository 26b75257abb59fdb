def gpipe(rank, num_ranks, num_microbatches):
    order = sorted((op != "F", k) for op in ("F", "B") for k in range(num_microbatches))
    return [(rank, "FB"[is_backward], k) for is_backward, k in order]
