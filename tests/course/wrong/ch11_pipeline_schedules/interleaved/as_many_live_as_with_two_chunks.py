# expect: DTL-MISTAKE
# says: the same for 2 chunks only
"""A forward pass while fewer are live than two chunks ask for, else a backward pass."""


def interleaved(rank, num_ranks, num_microbatches, chunks):
    if num_microbatches % num_ranks:
        raise ValueError("no multiple")
    order, forward, backward = [], 0, 0
    while backward < num_microbatches * chunks:
        goes_forward = (
            forward < num_microbatches * chunks and forward - backward < 2 * (num_ranks - rank - 1) + num_ranks + 1
        )
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
