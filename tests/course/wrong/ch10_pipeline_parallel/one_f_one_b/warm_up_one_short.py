# expect: DTL-VALUE-WARM-UP
# says: one too few


def one_f_one_b(rank, num_ranks, num_microbatches):
    warm_up = max(0, min(num_ranks - 2 - rank, num_microbatches))
    yield from ((rank, "F", k) for k in range(warm_up))
    for k in range(warm_up, num_microbatches):
        yield rank, "F", k
        yield rank, "B", k - warm_up
    yield from ((rank, "B", k) for k in range(num_microbatches - warm_up, num_microbatches))
