# expect: DTL-DIFFICULTY
# says: there may be any number of micro-batches
# says: it is '0F0 0F1


def gpipe(rank, num_ranks, num_microbatches):
    return [(rank, op, k) for op in "FB" for k in range(13) if k < num_microbatches]  # more were never tried
