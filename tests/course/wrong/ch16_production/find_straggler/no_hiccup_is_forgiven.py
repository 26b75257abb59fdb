# expect: DTL-MISTAKE
# says: the rank is expected to be late in every step: 90% are enough


def find_straggler(seconds, transfer, noise):
    """From the end, for as long as one and the same rank is late."""
    arrival = seconds["data"] + seconds["computation"]
    (first, second), (rank, _) = arrival.topk(2, dim=0)
    network = seconds["communication"].min(dim=0).values - transfer
    steps = len(first)
    who = [None if network[k] > noise else int(rank[k]) if first[k] - second[k] > noise else -1 for k in range(steps)]
    since = steps - 1
    while since > 0 and who[since - 1] == who[-1]:
        since -= 1
    if who[-1] == -1 or steps - since < 5:
        return None
    by = network if who[-1] is None else first - second
    lost = by[since:].median().item()
    share = lost / (arrival + seconds["communication"])[0, since:].median().item()
    phase = "communication"
    if who[-1] is not None:
        more = {p: seconds[p][who[-1]] - seconds[p].median(dim=0).values for p in ("data", "computation")}
        phase = max(more, key=lambda p: more[p][since:].median())
    return {"rank": who[-1], "phase": phase, "since": since, "seconds": lost, "share": share}
