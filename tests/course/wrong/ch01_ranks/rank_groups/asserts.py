# expect: DTL-VALUE-UNCHECKED
# says: an AssertionError where a ValueError is asked


def rank_groups(world_size, tp):
    assert world_size % tp == 0
    return {
        "tp": [list(range(f, f + tp)) for f in range(0, world_size, tp)],
        "dp": [list(range(p, world_size, tp)) for p in range(tp)],
    }
