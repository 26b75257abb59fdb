# expect: DTL-VALUE-TYPE
# says: action 0 should be such as (2, 'F', 0); it is [0, 'F', 0]


def gpipe(rank, num_ranks, num_microbatches):
    return [[rank, op, k] for op in "FB" for k in range(num_microbatches)]
