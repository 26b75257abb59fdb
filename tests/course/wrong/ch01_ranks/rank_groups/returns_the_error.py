# expect: DTL-VALUE-UNCHECKED
# says: was returned, not raised
def rank_groups(world_size, tp):
    if world_size % tp:
        return ValueError("tp must divide the world size")
    return {
        "tp": [list(range(first, first + tp)) for first in range(0, world_size, tp)],
        "dp": [list(range(place, world_size, tp)) for place in range(tp)],
    }
