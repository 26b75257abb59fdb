# expect: DTL-VALUE-ACTION-MISSING
# says: 0F3 and 1 more are missing


def gpipe(rank, num_ranks, num_microbatches):
    return [(rank, op, k) for op in "FB" for k in range(num_ranks)]
