# expect: DTL-DIFFICULTY
# says: there may be any number of micro-batches
# says: it is '0F0 0F1


def gpipe(rank, num_ranks, num_microbatches, most_live):
    actions = []
    for start in range(0, 32, most_live):  # more were never tried
        group = [k for k in range(start, start + most_live) if k < num_microbatches]
        actions += [(rank, op, k) for op in "FB" for k in group]
    return actions
