# expect: DTL-MISTAKE
# says: GPipe makes all backward passes of a group


def gpipe(rank, num_ranks, num_microbatches, most_live):
    forward = backward = 0
    while backward < num_microbatches:  # this is 1F1B, with the same number live on every rank
        if forward < num_microbatches and forward - backward < most_live:
            yield rank, "F", forward
            forward += 1
        else:
            yield rank, "B", backward
            backward += 1
