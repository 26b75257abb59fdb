# expect: DTL-DIFFICULTY
# says: a job must not drop ranks silently
# says: (on ranks 0-2)
def rank_groups(world_size, tp):
    if tp > world_size:
        raise ValueError
    return {
        "tp": [list(range(f, min(f + tp, world_size))) for f in range(0, world_size, tp)],
        "dp": [list(range(p, world_size, tp)) for p in range(tp)],
    }
