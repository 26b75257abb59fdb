# expect: DTL-VALUE-ACTION-MISSING
# says: 0B2 and 1 more are missing


def one_f_one_b(rank, num_ranks, num_microbatches):
    warm_up = min(num_ranks - 1 - rank, num_microbatches)
    yield from ((rank, "F", k) for k in range(warm_up))
    for k in range(warm_up, num_microbatches):
        yield rank, "F", k
        yield rank, "B", k - warm_up
