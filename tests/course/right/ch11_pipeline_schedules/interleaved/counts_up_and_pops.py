from collections import deque


def interleaved(rank, num_ranks, num_microbatches, chunks):
    rounds, left = divmod(num_microbatches, num_ranks)
    if left:
        raise ValueError("m is no multiple of p")
    forward, backward = deque(), deque()
    for first in range(0, rounds * num_ranks, num_ranks):
        for chunk in range(chunks):
            for k in range(first, first + num_ranks):
                forward.append((chunk * num_ranks + rank, "F", k))
                backward.append(((chunks - 1 - chunk) * num_ranks + rank, "B", k))
    order = []
    for _ in range((num_ranks - rank - 1) * 2 + (chunks - 1) * num_ranks):
        if forward:
            order.append(forward.popleft())
    while forward:
        order += [forward.popleft(), backward.popleft()]
    return order + list(backward)
