# expect: DTL-VALUE-NO-SINGLES
# says: groups of a single rank were left out
def rank_groups(world_size, tp):
    if world_size % tp:
        raise ValueError("tp must divide the world size")
    groups = {
        "tp": [list(range(first, first + tp)) for first in range(0, world_size, tp)],
        "dp": [list(range(place, world_size, tp)) for place in range(tp)],
    }
    return {kind: [group for group in some if len(group) > 1] for kind, some in groups.items()}
