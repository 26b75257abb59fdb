# expect: DTL-DIFFICULTY
# says: there are fewer micro-batches than ranks here


def gpipe(rank, num_ranks, num_microbatches):
    return [(rank, op, k) for op in "FB" for k in range(max(num_ranks, num_microbatches))]
