# expect: DTL-MISTAKE
# says: that of 1F1B with one stage a rank
"""A forward pass while fewer are live than 1F1B allows, else a backward pass."""


def interleaved(rank, num_ranks, num_microbatches, chunks):
    if num_microbatches % num_ranks:
        raise ValueError("no multiple")
    order, forward, backward = [], 0, 0
    while backward < num_microbatches * chunks:
        goes_forward = forward < num_microbatches * chunks and forward - backward < num_ranks - rank
        number = forward if goes_forward else backward
        group, place = divmod(number, num_ranks * chunks)
        chunk, k = divmod(place, num_ranks)
        if goes_forward:
            forward += 1
        else:
            chunk = chunks - 1 - chunk
            backward += 1
        order.append((chunk * num_ranks + rank, "F" if goes_forward else "B", group * num_ranks + k))
    return order
