# expect: DTL-RAISED
# says: it was called for the ranks of the mesh {'tp': 2, 'pp': 3, 'dp': 4}


def mesh_coordinates(rank, sizes, axis, step):
    inner, outer = sizes
    places = {inner: rank % sizes[inner], outer: rank // sizes[inner]}
    moved = {**places, axis: (places[axis] + step) % sizes[axis]}
    return places, moved[outer] * sizes[inner] + moved[inner]
