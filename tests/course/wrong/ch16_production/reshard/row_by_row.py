# expect: DTL-DIFFICULTY
# says: a tensor has any number of dims, not two at most

import math


def reshard(saved, start, shape):
    """Reads each row of two dims by itself, and takes a vector to be one row."""
    (r0, c0), (rows, columns) = ((0, *start)[-2:], (1, *shape)[-2:])
    reads, places = [], set()
    for file, first, lengths in saved:
        (f0, g0), (n, m) = ((0, *first)[-2:], (1, *lengths)[-2:])
        low, high = max(g0, c0), min(g0 + m, c0 + columns)
        for row in range(max(f0, r0), min(f0 + n, r0 + rows)):
            if low < high and (row, low) not in places:
                places.add((row, low))
                source = slice(row - f0, row - f0 + 1), slice(low - g0, high - g0)
                target = slice(row - r0, row - r0 + 1), slice(low - c0, high - c0)
                reads.append((file, source[-len(shape) :], target[-len(shape) :]))
    found = sum(math.prod(part.stop - part.start for part in source) for _, source, _ in reads)
    if found != rows * columns:
        raise ValueError(f"{rows * columns} are wanted, {found} are there")
    return reads
