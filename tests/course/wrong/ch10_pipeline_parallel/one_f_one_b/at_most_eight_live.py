# expect: DTL-DIFFICULTY
# says: however many (many ranks


def one_f_one_b(rank, num_ranks, num_microbatches):
    forward = backward = 0
    while backward < num_microbatches:
        if forward < num_microbatches and forward - backward < min(num_ranks - rank, 8):
            yield rank, "F", forward
            forward += 1
        else:
            yield rank, "B", backward
            backward += 1
