import itertools
import math


def reshard(saved, start, shape):
    """Looks each wanted element up among the files, and reads it by itself."""
    reads = []
    for place in itertools.product(*map(range, shape)):
        element = [s + p for s, p in zip(start, place, strict=True)]
        for file, first, lengths in saved:
            inside = [e - f for e, f in zip(element, first, strict=True)]
            if all(0 <= i < n for i, n in zip(inside, lengths, strict=True)):
                one = lambda index: tuple(slice(i, i + 1) for i in index)  # noqa: E731
                reads.append((file, one(inside), one(place)))
                break
    if len(reads) < math.prod(shape):
        raise ValueError(f"found {len(reads)} elements of {math.prod(shape)}: a file is missing")
    return reads
