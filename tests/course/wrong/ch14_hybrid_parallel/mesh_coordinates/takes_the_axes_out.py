# expect: DTL-VALUE
# says: the result['sizes stays as it is'] should be True; it is False


def mesh_coordinates(rank, sizes, axis, step):
    number, coordinates, stride = rank, {}, 1
    while sizes:
        name = next(iter(sizes))
        size = sizes.pop(name)
        coordinates[name] = number % size
        if name == axis:
            rank += ((number + step) % size - number % size) * stride
        number //= size
        stride *= size
    return coordinates, rank
