# expect: DTL-MISTAKE
# says: backward passes of micro-batches that do not exist


def one_f_one_b(rank, num_ranks, num_microbatches):
    warm_up = num_ranks - rank - 1
    yield from ((rank, "F", k) for k in range(warm_up))
    for k in range(warm_up, num_microbatches):
        yield rank, "F", k
        yield rank, "B", k - warm_up
    yield from ((rank, "B", k) for k in range(num_microbatches - warm_up, num_microbatches))
