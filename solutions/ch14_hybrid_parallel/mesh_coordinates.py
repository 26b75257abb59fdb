"""Find where a rank is on a mesh, and who its neighbour is.

The ranks of a job lie on a mesh: they have one **place**, from 0, on each axis. Ranks
that differ by 1 along the innermost axis have neighbouring numbers. Along the next
axis, neighbours are as far apart as the innermost axis is long, and so on outwards.

**Given**

- `rank`, the number of a rank;
- `sizes`, a dict with the number of ranks along each axis. Its **first key is the
  innermost axis**. Names, order and number of the axes may be any; an axis may have 1
  rank;
- `axis`, one of these axes, and `step`, a whole number, also 0 or negative.

**Return** two things:

1. the coordinates of the rank, a dict from the name of each axis to its place;
2. the number of the rank that is `step` places further along `axis`. All its other
   places are the same. Each axis is a ring: after its last place comes the first one,
   and before the first the last.

**Example** with `sizes = {"tp": 2, "pp": 3}`:

| | pp 0 | pp 1 | pp 2 |
|---|---|---|---|
| tp 0 | rank 0 | rank 2 | rank 4 |
| tp 1 | rank 1 | rank 3 | rank 5 |

With `rank = 5`, `axis = "pp"` and `step = 1` the result is `({"tp": 1, "pp": 2}, 1)`.

**Rules**: no communication, and `sizes` stays as it is.
"""


def mesh_coordinates(
    rank: int,
    sizes: dict[str, int],
    axis: str,
    step: int,
) -> tuple[dict[str, int], int]:
    """Return the coordinates of the rank, and its neighbour along an axis."""
    # BEGIN SOLUTION: go from the innermost axis outwards with the stride, then change the place on one axis
    coordinates, strides, stride = {}, {}, 1
    for name, size in sizes.items():
        coordinates[name] = rank // stride % size
        strides[name] = stride
        stride *= size
    place = (coordinates[axis] + step) % sizes[axis]
    return coordinates, rank + (place - coordinates[axis]) * strides[axis]
    # END SOLUTION
