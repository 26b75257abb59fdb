# expect: DTL-DIFFICULTY
# says: there are fewer micro-batches than may be live


def gpipe(rank, num_ranks, num_microbatches, most_live):
    start, size, actions = 0, most_live, []
    while start < num_microbatches:
        actions += [(rank, op, k) for op in "FB" for k in range(start, start + size)]
        start += size
        size = min(most_live, num_microbatches - start)
    return actions
