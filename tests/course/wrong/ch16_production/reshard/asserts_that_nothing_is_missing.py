# expect: DTL-DIFFICULTY
# says: expected a ValueError that has the number of wanted elements

import itertools
import math


def reshard(saved, start, shape):
    """Marks each wanted element, and asserts at the end that all are marked."""
    missing, reads = set(itertools.product(*(range(s, s + n) for s, n in zip(start, shape, strict=True)))), []
    for file, first, lengths in saved:
        block = [(max(f, s), min(f + n, s + m)) for f, n, s, m in zip(first, lengths, start, shape, strict=True)]
        common = missing & set(itertools.product(*(range(low, high) for low, high in block)))
        if common:
            missing -= common
            source = tuple(slice(low - f, high - f) for (low, high), f in zip(block, first, strict=True))
            target = tuple(slice(low - s, high - s) for (low, high), s in zip(block, start, strict=True))
            reads.append((file, source, target))
    assert not missing, f"{len(missing)} of {math.prod(shape)} elements are missing"
    return reads
