# expect: DTL-DIFFICULTY
# says: is put together from all of them

import math


def reshard(saved, start, shape):
    """Looks for the one file that has the whole block."""
    for file, first, lengths in saved:
        inside = [f <= s and s + m <= f + n for f, n, s, m in zip(first, lengths, start, shape, strict=True)]
        if all(inside) and math.prod(lengths):
            source = tuple(slice(s - f, s - f + m) for s, f, m in zip(start, first, shape, strict=True))
            return [(file, source, tuple(slice(0, m) for m in shape))]
    raise ValueError(f"{math.prod(shape)} elements are wanted, and 0 are in one file")
