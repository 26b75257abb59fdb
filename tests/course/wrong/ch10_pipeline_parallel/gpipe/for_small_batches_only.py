# expect: DTL-VALUE-ACTION-MISSING
# says: rank 0 of 2,
# says: 0F13 and


def gpipe(rank, num_ranks, num_microbatches):
    return [(rank, op, k) for op in "FB" for k in range(13) if k < num_microbatches]  # more were never tried
