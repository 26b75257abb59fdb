from collections import defaultdict


class BadSize(ValueError):
    pass


def rank_groups(world_size, tp):
    if (world_size // tp) * tp < world_size:
        raise BadSize(f"{world_size=} {tp=}")
    out = {"tp": defaultdict(list), "dp": defaultdict(list)}
    for rank in range(world_size):
        out["tp"][rank // tp].append(rank)
        out["dp"][rank % tp].append(rank)
    return {k: list(v.values()) for k, v in out.items()}
