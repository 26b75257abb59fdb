def simulator(orders, placement, times, transfer):
    """One unit of time after the other."""
    ready_at = {}
    waiting = [list(order) for order in orders]
    until = [0] * len(orders)
    idle, live, peak = [0] * len(orders), [0] * len(orders), [0] * len(orders)
    running = [None] * len(orders)
    now = 0

    def is_there(stage, ops, k, rank):
        for op in ops:
            if (stage, op, k) in ready_at:
                return now >= ready_at[stage, op, k] + (0 if placement[stage] == rank else transfer)
        return False

    def may_start(action, rank):
        stage, op, k = action
        if op == "F":
            return stage == 0 or is_there(stage - 1, "F", k, rank)
        if op == "W":
            return is_there(stage, "I", k, rank)
        last = stage == len(placement) - 1
        return is_there(stage, "F", k, rank) and (last or is_there(stage + 1, "BI", k, rank))

    while any(waiting) or any(action is not None for action in running):
        for rank in range(len(orders)):
            if running[rank] is not None and until[rank] == now:
                ready_at[running[rank]] = now
                live[rank] -= running[rank][1] in ("B", "W")
                running[rank] = None
        for rank in range(len(orders)):
            if running[rank] is None and waiting[rank] and may_start(waiting[rank][0], rank):
                running[rank] = waiting[rank].pop(0)
                stage, op, _ = running[rank]
                until[rank] = now + times[op][stage]
                live[rank] += op == "F"
                peak[rank] = max(peak[rank], live[rank])
        if any(waiting) or any(action is not None for action in running):
            idle = [n + (action is None) for n, action in zip(idle, running, strict=True)]
            now += 1
    return {"idle": idle, "peak": peak, "makespan": now}
