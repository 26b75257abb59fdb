# expect: DTL-MISTAKE
# says: so 0B0 comes before 0F1


def gpipe(rank, num_ranks, num_microbatches):
    return [(rank, op, k) for k in range(num_microbatches) for op in "FB"]
