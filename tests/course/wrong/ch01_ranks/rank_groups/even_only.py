# expect: DTL-VALUE-REFUSED
# says: although 15 ranks can be cut into groups of 3; 8 by 2, 12 by 4, 18 by 3 were accepted: is every odd world_size
def rank_groups(world_size, tp):
    if world_size % 2:
        raise ValueError("the ranks cannot be cut into equal groups")
    return {
        "tp": [list(range(first, first + tp)) for first in range(0, world_size, tp)],
        "dp": [list(range(place, world_size, tp)) for place in range(tp)],
    }
