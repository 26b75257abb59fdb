# expect: DTL-MISTAKE
# says: they too begin with the first


def gpipe(rank, num_ranks, num_microbatches, most_live):
    live = []
    for k in range(num_microbatches):
        yield rank, "F", k
        live.append(k)
        if len(live) == most_live or k == num_microbatches - 1:
            while live:
                yield rank, "B", live.pop()
