"""Print measured times to people, and the same words every time to a headless run, so that outputs can be compared."""

from __future__ import annotations

from dtlearn.notebook.frontend import is_live
from dtlearn.viz.units import format_seconds

_PLACEHOLDER = "(measured when you run this cell)"


def show_timing(label: str, seconds: float) -> None:
    """Print how long something took; a headless run prints a placeholder for the number.

    Args:
        label: what was timed.
        seconds: how long it took.
    """
    print(f"{label}: {format_seconds(seconds) if is_live() else _PLACEHOLDER}")
