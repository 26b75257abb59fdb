def one_f_one_b(rank, num_ranks, num_microbatches):
    actions, forward, backward = [], 0, 0
    while backward < num_microbatches:
        if forward < num_microbatches and forward - backward < num_ranks - rank:
            actions.append((rank, "F", forward))
            forward += 1
        else:
            actions.append((rank, "B", backward))
            backward += 1
    return actions
