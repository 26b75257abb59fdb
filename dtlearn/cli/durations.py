"""Measured times as text."""

from __future__ import annotations

import statistics
from collections.abc import Sequence


def seconds_text(seconds: float) -> str:
    """Three figures and a unit: 0.0123 -> "12.3 ms", 1.5 -> "1.50 s"."""
    if seconds < 0.9995:
        return f"{seconds * 1e3:.3g} ms" if seconds < 0.0995 else f"{seconds * 1e3:.0f} ms"
    return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.1f} s"


def spread(seconds: Sequence[float]) -> tuple[float, float, float]:
    """Median, smallest and largest."""
    return statistics.median(seconds), min(seconds), max(seconds)


def columns(rows: Sequence[Sequence[str]]) -> str:
    """Rows as text, the first column to the left and the others to the right; the first row is the heading."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        )
        for row in rows
    ]
    lines.insert(1, "-" * max(map(len, lines)))
    return "\n".join(line.rstrip() for line in lines)
