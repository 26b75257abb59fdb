# expect: DTL-DIFFICULTY
# says: a job must not drop ranks silently
# says: (on every rank)


def rank_groups(world_size, tp):
    world_size -= world_size % tp
    return {
        "tp": [list(range(i, i + tp)) for i in range(0, world_size, tp)],
        "dp": [list(range(i, world_size, tp)) for i in range(tp)],
    }
