# expect: DTL-VALUE-MICROBATCH-ORDER
# says: [3, 2, 1, 0]


def gpipe(rank, num_ranks, num_microbatches):
    for k in range(num_microbatches):
        yield rank, "F", k
    for k in reversed(range(num_microbatches)):
        yield rank, "B", k
