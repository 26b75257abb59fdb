def mesh_coordinates(rank, sizes, axis, step):
    """Count up from rank 0: the innermost axis goes on, and the next one when it is around."""
    places, wanted = dict.fromkeys(sizes, 0), {}
    for _ in range(rank + 1):
        wanted = dict(places)
        _go_on(places, sizes)
    target = {**wanted, axis: (wanted[axis] + step) % sizes[axis]}
    places, number = dict.fromkeys(sizes, 0), 0
    while places != target:
        _go_on(places, sizes)
        number += 1
    return wanted, number


def _go_on(places, sizes):
    for name, size in sizes.items():
        places[name] = (places[name] + 1) % size
        if places[name]:
            return
