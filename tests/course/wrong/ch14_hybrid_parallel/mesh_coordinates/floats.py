# expect: DTL-VALUE-TYPE
# says: rank 0, axis tp, step 1: the numbers are right, but floats


def mesh_coordinates(rank, sizes, axis, step):
    coordinates, strides, stride, left = {}, {}, 1, rank
    for name, size in sizes.items():
        coordinates[name], strides[name] = left % size, stride
        left = (left - coordinates[name]) / size
        stride *= size
    moved = (coordinates[axis] + step) % sizes[axis]
    return coordinates, rank + (moved - coordinates[axis]) * strides[axis]
