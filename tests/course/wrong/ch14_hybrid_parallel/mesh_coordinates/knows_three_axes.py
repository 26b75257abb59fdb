# expect: DTL-DIFFICULTY
# says: a mesh may have axes of any name, and any number of them


def mesh_coordinates(rank, sizes, axis, step):
    names = [name for name in sizes if name in ("tp", "pp", "dp")]
    coordinates, strides, inner = {}, {}, 1
    for name in names:
        coordinates[name], strides[name] = rank // inner % sizes[name], inner
        inner *= sizes[name]
    moved = (coordinates.get(axis, 0) + step) % sizes[axis]
    return coordinates, rank + (moved - coordinates.get(axis, 0)) * strides.get(axis, 0)
