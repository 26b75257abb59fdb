# expect: DTL-DIFFICULTY
# says: all of the result is of the steps since the rank is slow


def find_straggler(seconds, transfer, noise):
    """The rank that arrives last on average over the whole table, against the average of the others."""
    arrival = (seconds["data"] + seconds["computation"]).mean(dim=1)
    rank = int(arrival.argmax())
    lost = (arrival[rank] - arrival[arrival < arrival[rank]].max()).item()
    network = seconds["communication"].min(dim=0).values.mean().item() - transfer
    whole = sum(table[rank].mean().item() for table in seconds.values())
    if network > noise:
        return {"rank": None, "phase": "communication", "since": 0, "seconds": network, "share": network / whole}
    if lost <= noise:
        return None
    more = {p: (table[rank].mean() - table.mean()).item() for p, table in seconds.items() if p != "communication"}
    return {"rank": rank, "phase": max(more, key=more.get), "since": 0, "seconds": lost, "share": lost / whole}
