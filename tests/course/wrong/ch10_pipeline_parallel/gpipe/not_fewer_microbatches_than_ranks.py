# expect: DTL-MISTAKE
# says: the number of micro-batches follows that of the ranks


def gpipe(rank, num_ranks, num_microbatches):
    return [(rank, op, k) for op in "FB" for k in range(max(num_ranks, num_microbatches))]
