from statistics import median


def find_straggler(seconds, transfer, noise):
    """Step by step, in Python's own numbers."""
    tables = {name: table.tolist() for name, table in seconds.items()}
    ranks, steps = range(len(tables["data"])), range(len(tables["data"][0]))
    arrival = [
        [d + c for d, c in zip(*own, strict=True)] for own in zip(tables["data"], tables["computation"], strict=True)
    ]

    def lateness(who, k):
        if who is None:
            return min(row[k] for row in tables["communication"]) - transfer
        return arrival[who][k] - max(arrival[rank][k] for rank in ranks if rank != who)

    for who in (*ranks, None):
        late = [lateness(who, k) for k in steps]
        starts = [k for k in steps if late[k] > noise and 10 * sum(x > noise for x in late[k:]) >= 9 * len(late[k:])]
        if not starts or len(steps) - starts[0] < 5:
            continue
        own = steps[starts[0] :]
        cost = median(late[k] for k in own)
        whole = median(arrival[0][k] + tables["communication"][0][k] for k in own)
        result = {"rank": who, "phase": "communication", "since": own[0], "seconds": cost, "share": cost / whole}
        if who is not None:
            data, computation = (
                median(tables[phase][who][k] - median(tables[phase][rank][k] for rank in ranks) for k in own)
                for phase in ("data", "computation")
            )
            result["phase"] = "data" if data > computation else "computation"
        return result
    return None
