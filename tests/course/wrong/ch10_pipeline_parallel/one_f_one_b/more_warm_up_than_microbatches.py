# expect: DTL-MISTAKE
# says: p - rank even where there are fewer micro-batches


def one_f_one_b(rank, num_ranks, num_microbatches):
    warm_up = num_ranks - rank - 1
    yield from ((rank, "F", k) for k in range(warm_up))
    for k in range(warm_up, num_microbatches):
        yield rank, "F", k
        yield rank, "B", k - warm_up
    yield from ((rank, "B", k) for k in range(max(0, num_microbatches - warm_up), num_microbatches))
