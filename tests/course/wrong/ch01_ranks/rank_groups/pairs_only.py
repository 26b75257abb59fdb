# expect: DTL-DIFFICULTY
# says: tp may be larger than 2


def rank_groups(world_size, tp):
    if world_size % tp:
        raise ValueError("tp must divide the world size")
    return {
        "tp": [list(range(i, i + tp)) for i in range(0, world_size, tp)],
        "dp": [list(range(i, world_size, tp)) for i in (0, 1)],
    }
