# expect: DTL-MISTAKE
# says: each keeps an activation, and p are allowed
def zero_bubble(orders):
    """Play it with F = I = W = 1: a rank whose next action is not ready does a W."""
    num_ranks = len(orders)
    ends = {}
    left = [[(s, "I" if op == "B" else op, k) for s, op, k in order] for order in orders]
    weights = [[] for _ in orders]
    live = [0] * num_ranks
    made = [[] for _ in orders]
    now = 0

    def is_ready(action, rank):
        stage, op, k = action
        if op == "F":
            before = [(stage - 1, "F", k)] if stage else []
            return all(ends.get(a, now + 1) <= now for a in before)
        needed = [(stage, "F", k)] + ([(stage + 1, "I", k)] if stage + 1 < num_ranks else [])
        return all(ends.get(a, now + 1) <= now for a in needed)

    while any(left) or any(weights):
        chosen = []
        for rank in range(num_ranks):
            if left[rank] and is_ready(left[rank][0], rank):
                chosen.append((rank, left[rank].pop(0)))
            elif weights[rank]:
                chosen.append((rank, weights[rank].pop(0)))
        now += 1
        for rank, action in chosen:
            made[rank].append(action)
            ends[action] = now
            stage, op, k = action
            live[rank] += (op == "F") - (op == "W")
            if op == "I":
                weights[rank].append((stage, "W", k))
    return made
