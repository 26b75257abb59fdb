# expect: DTL-VALUE-TYPE
# says: should be a whole number; it is a dict


def mesh_coordinates(rank, sizes, axis, step):
    coordinates, stride = {}, 1
    for name, size in sizes.items():
        coordinates[name] = rank // stride % size
        stride *= size
    return coordinates, {**coordinates, axis: (coordinates[axis] + step) % sizes[axis]}
