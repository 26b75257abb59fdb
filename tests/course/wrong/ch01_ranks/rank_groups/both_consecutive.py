# expect: DTL-VALUE-DP
# says: the dp groups are consecutive ranks


def rank_groups(world_size, tp):
    if world_size % tp:
        raise ValueError("tp must divide the world size")
    return {
        "tp": [list(range(i, i + tp)) for i in range(0, world_size, tp)],
        "dp": [list(range(i, i + world_size // tp)) for i in range(0, world_size, world_size // tp)],
    }
