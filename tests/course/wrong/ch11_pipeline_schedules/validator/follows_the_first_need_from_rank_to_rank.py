# expect: DTL-MISTAKE
# says: through the first of them only
"""The circle is walked in a loop, from a stuck rank to the rank of the first action that it still needs."""


def validator(orders, placement, num_microbatches, ops):
    wanted = [(s, op, k) for s in range(len(placement)) for op in ops for k in range(num_microbatches)]
    there = [action for order in orders for action in order]
    found = {
        "unknown": list({a for a in there if a not in wanted}),
        "missing": [a for a in wanted if a not in there],
        "repeated": [a for a in wanted if there.count(a) > 1],
        "misplaced": [a for a in wanted if any(a in o for rank, o in enumerate(orders) if rank != placement[a[0]])],
        "stuck": [None] * len(orders),
        "circle": [],
    }
    if found["unknown"] or found["missing"] or found["repeated"] or found["misplaced"]:
        return found
    left, done = [list(order) for order in orders], []

    def first_need(action):
        stage, op, k = action
        needs = {"F": [(stage - 1, "F", k)], "W": [(stage, "I", k)]}.get(op, [(stage, "F", k), (stage + 1, op, k)])
        return next((a for a in needs if 0 <= a[0] < len(placement) and a not in done), None)

    gets_on = True
    while gets_on:
        gets_on = False
        for order in left:
            while order and first_need(order[0]) is None:
                done.append(order.pop(0))
                gets_on = True
    found["stuck"] = [order[0] if order else None for order in left]
    for rank, order in enumerate(left):
        at, seen = rank, []
        while left[at] and at not in seen:
            seen.append(at)
            at = placement[first_need(left[at][0])[0]]
        if order and at == rank:
            found["circle"].append(rank)
    return found
