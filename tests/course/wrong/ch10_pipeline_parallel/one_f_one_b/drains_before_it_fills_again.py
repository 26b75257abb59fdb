# expect: DTL-MISTAKE
# says: a forward pass goes next


def one_f_one_b(rank, num_ranks, num_microbatches):
    most = num_ranks - rank
    for first in range(0, num_microbatches, most):
        batch = range(first, min(first + most, num_microbatches))
        yield from ((rank, op, k) for op in "FB" for k in batch)
