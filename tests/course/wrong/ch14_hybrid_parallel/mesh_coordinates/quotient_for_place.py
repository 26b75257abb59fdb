# expect: DTL-VALUE
# says: the result['rank 0, axis tp, step 1'][1] should be 1; it is 3


def mesh_coordinates(rank, sizes, axis, step):
    """The quotient and the remainder of divmod are swapped: the remainder is the place."""

    def places(number):
        found = {}
        for name, size in sizes.items():
            found[name], number = divmod(number, size)
        return found

    coordinates = places(rank)
    moved = {**coordinates, axis: (coordinates[axis] + step) % sizes[axis]}
    number, stride = 0, 1
    for name, size in reversed(sizes.items()):
        number += moved[name] * stride
        stride *= size
    return coordinates, number
