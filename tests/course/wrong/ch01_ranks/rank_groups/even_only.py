# expect: DTL-DIFFICULTY
# says: an odd world_size is no reason to refuse it
def rank_groups(world_size, tp):
    if world_size % 2:
        raise ValueError("the ranks cannot be cut into equal groups")
    return {
        "tp": [list(range(first, first + tp)) for first in range(0, world_size, tp)],
        "dp": [list(range(place, world_size, tp)) for place in range(tp)],
    }
