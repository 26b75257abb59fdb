# expect: DTL-VALUE
# says: the result['tp'][0][0] should be 0; it is 6
def rank_groups(world_size, tp):
    if world_size % tp:
        raise ValueError
    return {
        "tp": [list(range(f, f + tp)) for f in range(0, world_size, tp)][::-1],
        "dp": [list(range(p, world_size, tp)) for p in range(tp)],
    }
