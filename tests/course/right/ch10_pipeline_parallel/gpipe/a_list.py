def gpipe(rank, num_ranks, num_microbatches, most_live):
    order = sorted((k // most_live, op != "F", k) for op in ("F", "B") for k in range(num_microbatches))
    return [(rank, "FB"[is_backward], k) for _, is_backward, k in order]
