# expect: DTL-VALUE-SWAPPED
# says: it is the other way round


def rank_groups(world_size, tp):
    if world_size % tp:
        raise ValueError("tp must divide the world size")
    return {
        "tp": [list(range(i, world_size, tp)) for i in range(tp)],
        "dp": [list(range(i, i + tp)) for i in range(0, world_size, tp)],
    }
