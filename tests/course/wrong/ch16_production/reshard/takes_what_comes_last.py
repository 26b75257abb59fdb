# expect: DTL-DIFFICULTY
# says: two files may have the same block: one of them is read

import math


def reshard(saved, start, shape):
    """Lets a copy overwrite what was there, and counts the elements that are covered at the end."""
    reads, covered = [], {}
    for file, first, lengths in saved:
        low = tuple(map(max, first, start))
        high = tuple(min(f + n, s + m) for f, n, s, m in zip(first, lengths, start, shape, strict=True))
        if all(a < b for a, b in zip(low, high, strict=True)):
            covered[low] = math.prod(b - a for a, b in zip(low, high, strict=True))
            source = tuple(slice(a - f, b - f) for a, b, f in zip(low, high, first, strict=True))
            target = tuple(slice(a - s, b - s) for a, b, s in zip(low, high, start, strict=True))
            reads.append((file, source, target))
    if sum(covered.values()) < math.prod(shape):
        raise ValueError(f"{sum(covered.values())} of {math.prod(shape)} elements were saved")
    return reads
