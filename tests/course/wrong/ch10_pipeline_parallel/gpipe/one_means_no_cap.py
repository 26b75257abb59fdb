# expect: DTL-DIFFICULTY
# says: only one micro-batch may be live at a time


def gpipe(rank, num_ranks, num_microbatches, most_live):
    size = most_live if most_live > 1 else num_microbatches
    starts = range(0, num_microbatches, size)
    groups = [range(start, min(start + size, num_microbatches)) for start in starts]
    return [(rank, op, k) for group in groups for op in "FB" for k in group]
