# expect: DTL-RAISED
# says: there are 2 ranks or more

import torch


def find_straggler(seconds, transfer, noise):
    """The cluster of the notebook has four ranks, sorted by arrival: the last, the second last, and two more."""
    arrival = seconds["data"] + seconds["computation"]
    length = (arrival + seconds["communication"])[0]
    last, second, _, _ = range(4)
    rows = arrival.sort(dim=0, descending=True)
    late = {r: torch.where(rows.indices[last] == r, rows.values[last] - rows.values[second], 0.0) for r in range(4)}
    late[None] = seconds["communication"].amin(dim=0) - transfer
    rows.values[3]  # there is a fourth one
    for rank, own in late.items():
        for since in range(len(own) - 4):
            if own[since] > noise and 10 * int((own[since:] > noise).sum()) >= 9 * len(own[since:]):
                more = {p: seconds[p][rank or 0] - seconds[p].median(dim=0).values for p in ("data", "computation")}
                phase = "communication" if rank is None else max(more, key=lambda p: more[p][since:].median())
                lost = own[since:].median().item()
                share = lost / length[since:].median().item()
                return {"rank": rank, "phase": phase, "since": since, "seconds": lost, "share": share}
    return None
