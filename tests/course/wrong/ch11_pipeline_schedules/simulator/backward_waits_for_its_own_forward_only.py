# expect: DTL-VALUE-DEPENDENCY
# says: from which its gradient comes


def simulator(orders, placement, times, transfer):
    """Return the makespan, and each rank's idle time and peak of live activations."""
    ends = {}  # both B and the I of a split backward pass stand there as "B"
    free, place = [0] * len(orders), [0] * len(orders)

    def needs(stage, op, k):
        if op == "F":
            return [(stage - 1, "F", k)] if stage else []
        if op == "W":
            return [(stage, "B", k)]
        return [(stage, "F", k)]

    while any(place[rank] < len(order) for rank, order in enumerate(orders)):
        for rank, order in enumerate(orders):
            while place[rank] < len(order) and all(a in ends for a in needs(*order[place[rank]])):
                stage, op, k = order[place[rank]]
                start = free[rank]
                for needed in needs(stage, op, k):
                    start = max(start, ends[needed] + transfer * (placement[needed[0]] != rank))
                free[rank] = start + times[op][stage]
                ends[stage, "B" if op == "I" else op, k] = free[rank]
                place[rank] += 1
    made = {"makespan": max(free), "idle": [], "peak": []}
    for order in orders:
        live = peak = 0
        for _, op, _ in order:
            live += (op == "F") - (op in "BW")
            peak = max(peak, live)
        made["idle"].append(made["makespan"] - sum(times[op][stage] for stage, op, _ in order))
        made["peak"].append(peak)
    return made
