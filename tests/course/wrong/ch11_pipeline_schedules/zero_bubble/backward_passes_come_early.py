# expect: DTL-VALUE
# says: Fs and Is of rank
"""Lists of I and W by hand: each rank does a backward pass as soon as it has p - r forward passes.

The first F after that is forgotten, so that the Fs and Is stand in another order than the Fs and Bs of 1F1B.
"""


def zero_bubble(orders):
    p, made = len(orders), []
    for rank, order in enumerate(orders):
        m = len(order) // 2
        warm, own, waiting = min(m, p - rank), [], []
        own += [(rank, "F", k) for k in range(warm)]
        for k in range(m):
            own.append((rank, "I", k))
            waiting.append((rank, "W", k))
            if len(waiting) > rank:
                own.append(waiting.pop(0))
            if k >= m - 2 and warm < m:
                own += [(rank, "F", j) for j in range(warm, m)]
                warm = m
        made.append(own + waiting)
    return made
