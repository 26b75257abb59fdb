# expect: DTL-MISTAKE
# says: a misplaced action is listed as often as it stands in `orders`
"""The order of each rank is read, and what is wrong with an action is noted where it stands."""

from collections import Counter


def validator(orders, placement, num_microbatches, ops):
    found = {
        "unknown": [],
        "missing": [],
        "repeated": [],
        "misplaced": [],
        "stuck": [None for _ in orders],
        "circle": [],
    }
    counts, known = Counter(a for order in orders for a in order), 0
    for rank, order in enumerate(orders):
        for stage, op, k in order:
            if op not in ops or not 0 <= stage < len(placement) or not 0 <= k < num_microbatches:
                if (stage, op, k) not in found["unknown"]:
                    found["unknown"].append((stage, op, k))
                continue
            known += 1
            if placement[stage] != rank:
                found["misplaced"].append((stage, op, k))
            if counts[stage, op, k] > 1 and (stage, op, k) not in found["repeated"]:
                found["repeated"].append((stage, op, k))
    for stage in range(len(placement)):
        for op in ops:
            found["missing"] += [(stage, op, k) for k in range(num_microbatches) if not counts[stage, op, k]]
    if known < sum(counts.values()) or found["missing"] or found["repeated"] or found["misplaced"]:
        return found
    last, at, done = len(placement) - 1, [0] * len(orders), set()

    def left_of(action):
        stage, op, k = action
        if op == "F":
            needed = {(stage - 1, "F", k)} if stage else set()
        elif op == "W":
            needed = {(stage, "I", k)}
        else:
            needed = {(stage, "F", k)} | ({(stage + 1, op, k)} if stage < last else set())
        return needed - done

    ready = True
    while ready:
        ready = [r for r, order in enumerate(orders) if at[r] < len(order) and not left_of(order[at[r]])]
        for rank in ready:
            done.add(orders[rank][at[rank]])
            at[rank] += 1
    edges = {r: {placement[a[0]] for a in left_of(o[at[r]])} for r, o in enumerate(orders) if at[r] < len(o)}
    for rank in edges:
        found["stuck"][rank] = orders[rank][at[rank]]
        reached, todo = set(), [rank]
        while todo:
            todo += (new := edges[todo.pop()] - reached)
            reached |= new
        if rank in reached:
            found["circle"].append(rank)
    return found
