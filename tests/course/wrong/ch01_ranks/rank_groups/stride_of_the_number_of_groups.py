# expect: DTL-VALUE-STRIDE
# says: every 4th rank, which is world_size / tp
# says: lie tp = 2 apart


def rank_groups(world_size, tp):
    if world_size % tp:
        raise ValueError
    return {
        "tp": [list(range(f, f + tp)) for f in range(0, world_size, tp)],
        "dp": [list(range(p, world_size, world_size // tp)) for p in range(world_size // tp)],
    }
