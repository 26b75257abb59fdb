# expect: DTL-MISTAKE
# says: the phase is the one in which the slow rank spends most time


def find_straggler(seconds, transfer, noise):
    """Data are loaded in 50 ms at most, as somebody knows: what is late is slow in its computation."""
    arrival = (seconds["data"] + seconds["computation"]).tolist()
    steps = range(len(arrival[0]))
    late = {None: [min(column) - transfer for column in zip(*seconds["communication"].tolist(), strict=True)]}
    for rank, own in enumerate(arrival):
        others = zip(*arrival[:rank], *arrival[rank + 1 :], strict=True)
        late[rank] = [x - max(rest) for x, rest in zip(own, others, strict=True)]
    for rank, own in late.items():
        for since in steps[:-4]:
            count = sum(x > noise for x in own[since:])
            if own[since] > noise and count / len(own[since:]) >= 0.9:
                lost = sorted(own[since:])[len(own[since:]) // 2]
                ends = sum(table[0] for table in seconds.values())[since:].tolist()
                share = lost / sorted(ends)[len(ends) // 2]
                phase = "communication" if rank is None else "computation"
                return {"rank": rank, "phase": phase, "since": since, "seconds": lost, "share": share}
    return None
