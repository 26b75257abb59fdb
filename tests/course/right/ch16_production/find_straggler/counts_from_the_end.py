import torch


def find_straggler(seconds, transfer, noise):
    """All ranks at once, and how many steps are late from each one to the end by a sum from behind."""
    arrival = seconds["data"] + seconds["computation"]
    num_ranks, num_steps = arrival.shape
    two = arrival.sort(dim=0, descending=True).values[:2]
    last_of_others = torch.where(arrival == two[0], two[1], two[0])
    late = torch.cat([arrival - last_of_others, (seconds["communication"].amin(0) - transfer)[None]])
    is_late = late > noise
    left = torch.arange(num_steps, 0, -1)
    share_of_late = is_late.long().flip(1).cumsum(1).flip(1) / left
    since_all = is_late & (share_of_late >= 0.9 - 1e-6) & (left >= 5)
    slow = since_all.any(dim=1).nonzero().flatten().tolist()
    if not slow:
        return None
    since = since_all[slow[0]].nonzero()[0].item()
    after = slice(since, None)
    lost = late[slow[0], after].quantile(0.5).item()
    length = torch.stack(list(seconds.values())).sum(dim=0)[-1, after].quantile(0.5).item()
    found = {"rank": None, "phase": "communication", "since": since, "seconds": lost, "share": lost / length}
    if slow[0] < num_ranks:
        tables = torch.stack([seconds["computation"], seconds["data"]])
        more = (tables[:, slow[0]] - tables.quantile(0.5, dim=1))[:, after].quantile(0.5, dim=1)
        found |= {"rank": slow[0], "phase": ["computation", "data"][int(more.argmax())]}
    return found
