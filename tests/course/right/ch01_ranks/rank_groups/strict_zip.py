def rank_groups(world_size, tp):
    it = iter(range(world_size))
    groups = list(zip(*[it] * tp, strict=True))
    return {"tp": [[*g] for g in groups], "dp": [[*g] for g in zip(*groups, strict=False)]}
