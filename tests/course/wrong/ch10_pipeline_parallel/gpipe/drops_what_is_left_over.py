# expect: DTL-MISTAKE
# says: the micro-batches of the last, smaller group are missing


def gpipe(rank, num_ranks, num_microbatches, most_live):
    actions = []
    for group in range(num_microbatches // most_live):
        for op in "FB":
            actions += [(rank, op, group * most_live + k) for k in range(most_live)]
    return actions
