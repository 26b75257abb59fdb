import random


def memory_cap(num_ranks, num_microbatches, cap):
    """Plays with ranks that choose by chance among what they can do, and keeps the best of some tries."""
    last = 2 * num_ranks - 1
    placement = [min(stage, last - stage) for stage in range(last + 1)]
    chance = random.Random(num_ranks * 100 + cap)
    best = None
    for _ in range(12):
        steps, orders = play(placement, num_microbatches, cap, chance)
        if best is None or steps < best[0]:
            best = steps, orders
    return placement, best[1]


def play(placement, num_microbatches, cap, chance):
    num_ranks, last = max(placement) + 1, len(placement) - 1
    orders = [[] for _ in range(num_ranks)]
    done, steps = set(), 0
    next_of = {(stage, op): 0 for stage in range(last + 1) for op in "FIW"}
    while len(done) < 3 * (last + 1) * num_microbatches:
        new = []
        for rank, order in enumerate(orders):
            live = sum((op == "F") - (op == "W") for _, op, _ in order)
            going = sum(s == rank and op == "F" for s, op, _ in order)
            going -= sum(s == last - rank and op == "F" for s, op, _ in order)
            ready = []
            for stage in (rank, last - rank):
                for op in "FIW":
                    k = next_of[stage, op]
                    if k == num_microbatches:
                        continue
                    needed = {
                        "F": {(stage - 1, "F", k)} if stage else set(),
                        "I": {(stage, "F", k)} | ({(stage + 1, "I", k)} if stage < last else set()),
                        "W": {(stage, "I", k)},
                    }[op]
                    if op == "F" and live + (1 if stage != rank else 2 + going) > cap:
                        continue
                    if needed <= done:
                        ready.append(("WFI".index(op) + 0.9 * chance.random(), stage, op, k))
            if ready:
                _, *action = max(ready)
                new.append((rank, tuple(action)))
        for rank, action in new:
            orders[rank].append(action)
            done.add(action)
            next_of[action[:2]] += 1
        steps += 1
    return steps, orders
