# expect: DTL-VALUE-TP
# says: taken for the number of tp groups


def rank_groups(world_size, tp):
    if world_size % tp:
        raise ValueError("tp must divide the world size")
    return {
        "tp": [list(range(i, i + world_size // tp)) for i in range(0, world_size, world_size // tp)],
        "dp": [list(range(i, world_size, world_size // tp)) for i in range(world_size // tp)],
    }
