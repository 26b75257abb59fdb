"""Measured figures as text."""

import statistics
from collections.abc import Sequence

from ..runtime.words import columns


def spread(seconds: Sequence[float]) -> tuple[float, float, float]:
    """Median, smallest and largest."""
    return statistics.median(seconds), min(seconds), max(seconds)


def spread_values(seconds: Sequence[float]) -> dict[str, float]:
    """Median, least and most seconds, for JSON."""
    return dict(zip(("median", "min", "max"), spread(seconds), strict=True))


def size_text(nbytes: int) -> str:
    """A power of two of bytes: "64 KiB", "16 MiB"."""
    return f"{nbytes >> 20} MiB" if nbytes >= 1 << 20 else f"{nbytes >> 10} KiB"


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Rows as text, the first column to the left and the others to the right; the first row is the heading."""
    lines = columns(rows, range(1, len(rows[0])), indent="")
    width = sum(max(map(len, column)) + 2 for column in zip(*rows, strict=True)) - 2
    return "\n".join([lines[0], "-" * width, *lines[1:]])
