# expect: DTL-MUTATED
# says: changed what it was given: seconds

from statistics import median


def find_straggler(seconds, transfer, noise):
    """The arrivals are added up in the table itself, so that data has computation in it afterwards."""
    more_than_median = {p: seconds[p] - seconds[p].median(0).values for p in ("computation", "data")}
    arrival = seconds["data"]
    arrival += seconds["computation"]
    ranks, steps = arrival.shape
    own = {None: (seconds["communication"].min(0).values - transfer).tolist()}
    for r in range(ranks):
        own[r] = [
            arrival[r, k].item() - max(arrival[o, k].item() for o in range(ranks) if o != r) for k in range(steps)
        ]
    for r, late in own.items():
        for k in range(steps - 4):
            if late[k] > noise and 10 * sum(x > noise for x in late[k:]) >= 9 * (steps - k):
                more = {p: table[r or 0, k:].median() for p, table in more_than_median.items()}
                lost = median(late[k:])
                whole = (arrival + seconds["communication"])[0, k:].median().item()
                phase = "communication" if r is None else max(more, key=more.get)
                return {"rank": r, "phase": phase, "since": k, "seconds": lost, "share": lost / whole}
    return None
