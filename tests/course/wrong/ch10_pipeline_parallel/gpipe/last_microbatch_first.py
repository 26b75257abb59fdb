# expect: DTL-MISTAKE
# says: they too begin with micro-batch 0


def gpipe(rank, num_ranks, num_microbatches):
    for k in range(num_microbatches):
        yield rank, "F", k
    for k in reversed(range(num_microbatches)):
        yield rank, "B", k
