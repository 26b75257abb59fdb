def validator(orders, placement, num_microbatches, ops):
    where = {}
    for rank, order in enumerate(orders):
        for n, action in enumerate(order):
            where.setdefault(action, []).append((rank, n))

    def exists(stage, op, k):
        return op in ops and 0 <= stage < len(placement) and 0 <= k < num_microbatches

    every = [(s, op, k) for k in range(num_microbatches) for op in ops for s in range(len(placement))]
    result = {
        "unknown": {a for a in where if not exists(*a)},
        "missing": tuple(a for a in every if a not in where),
        "repeated": [a for a in every if len(where.get(a, [])) > 1],
        "misplaced": [a for a in every if {r for r, _ in where.get(a, [])} - {placement[a[0]]}],
        "stuck": [None for _ in orders],
        "circle": [],
    }
    if any(list(result[key]) for key in result if key != "stuck"):
        return result
    finished = {}  # action -> whether it can ever be done, None while that is being found out

    def before(action):
        stage, op, k = action
        rank, n = where[action][0]
        found = [orders[rank][n - 1]] if n else []
        if op == "F" and stage > 0:
            found.append((stage - 1, "F", k))
        if op == "W":
            found.append((stage, "I", k))
        if op in ("B", "I"):
            found.append((stage, "F", k))
            if stage + 1 < len(placement):
                found.append((stage + 1, op, k))
        return found

    def can(action):
        if action not in finished:
            finished[action] = None
            finished[action] = all([can(other) for other in before(action)])
        return bool(finished[action])

    for action in every:
        can(action)
    edges = {}
    for rank, order in enumerate(orders):
        left = [a for a in order if not can(a)]
        if left:
            result["stuck"][rank] = left[0]
            own = [a for a in before(left[0]) if not can(a)]
            edges[rank] = {placement[a[0]] for a in own}

    def reaches(rank, goal, seen):
        for other in edges.get(rank, ()):
            if other == goal or (other not in seen and reaches(other, goal, seen | {other})):
                return True
        return False

    result["circle"] = [rank for rank in sorted(edges) if reaches(rank, rank, set())]
    return result
