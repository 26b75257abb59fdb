"""Measured figures as text."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from ...runtime.words import columns


def spread(seconds: Sequence[float]) -> tuple[float, float, float]:
    """Median, smallest and largest."""
    return statistics.median(seconds), min(seconds), max(seconds)


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Rows as text, the first column to the left and the others to the right; the first row is the heading."""
    lines = columns(rows, range(1, len(rows[0])), indent="")
    return "\n".join([lines[0], "-" * _width(rows), *lines[1:]])


def _width(rows: Sequence[Sequence[str]]) -> int:
    return sum(max(map(len, column)) + 2 for column in zip(*rows, strict=True)) - 2
