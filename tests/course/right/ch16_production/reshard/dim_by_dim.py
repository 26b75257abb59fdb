from math import prod


def common(first, length, start, wanted):
    """What two stretches of one dim have in common, as slices of both; None if there is nothing."""
    both = range(max(first, start), min(first + length, start + wanted))
    return both and (slice(both.start - first, both.stop - first), slice(both.start - start, both.stop - start))


def reshard(saved, start, shape):
    """Keeps one file for each block, the last, and goes through the dims of each with a function of its own."""
    files = {(first, lengths): file for file, first, lengths in saved}
    reads = []
    for (first, lengths), file in files.items():
        dims = [common(*dim) for dim in zip(first, lengths, start, shape, strict=True)]
        if all(dims):
            reads.append((file, tuple(s for s, _ in dims), tuple(t for _, t in dims)))
    found = sum(prod(s.stop - s.start for s in target) for _, _, target in reads)
    if found < prod(shape):
        raise ValueError(f"{prod(shape)} elements are wanted, the files have {found}: the checkpoint is incomplete")
    return reads
