# expect: DTL-MISTAKE
# says: the oldest goes first


def one_f_one_b(rank, num_ranks, num_microbatches):
    live, forward = [], 0
    while forward < num_microbatches or live:
        if forward < num_microbatches and len(live) < num_ranks - rank:
            live.append(forward)
            yield rank, "F", forward
            forward += 1
        else:
            yield rank, "B", live.pop()
