# expect: DTL-DIFFICULTY
# says: an axis of one rank has the place 0


def mesh_coordinates(
    rank: int,
    sizes: dict[str, int],
    axis: str,
    step: int,
) -> tuple[dict[str, int], int]:
    """Return the coordinates of the rank, and its neighbour along an axis."""
    coordinates, strides, stride = {}, {}, 1
    for name, size in sizes.items():
        coordinates[name] = rank // stride % size
        strides[name] = stride
        stride = stride * size if size > 1 else 1
    place = (coordinates[axis] + step) % sizes[axis]
    return coordinates, rank + (place - coordinates[axis]) * strides[axis]
