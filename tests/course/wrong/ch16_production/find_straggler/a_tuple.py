# expect: DTL-VALUE-TYPE
# says: the result should be a dict; it is a list

import torch


def find_straggler(seconds, transfer, noise):
    arrival = seconds["data"] + seconds["computation"]
    top = arrival.topk(2, dim=0)
    late = (top.values[0] - top.values[1]) * (top.values[0] - top.values[1] > noise)
    rank = int(top.indices[0][late > 0].mode().values) if bool((late > 0).any()) else None
    since = int(late.nonzero()[0]) if rank is not None else 0
    lost = late[since:].median().item()
    excess = torch.stack([seconds[p][rank or 0] - seconds[p].median(0).values for p in ("data", "computation")])
    phase = ("data", "computation")[int(excess[:, since:].median(1).values.argmax())]
    return rank, phase, since, lost, lost / (arrival + seconds["communication"])[0, since:].median().item()
