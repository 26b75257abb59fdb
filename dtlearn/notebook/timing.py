"""Print measured times to people, and the same words every time to a headless run, so that outputs can be compared."""

from __future__ import annotations

from dtlearn.notebook.frontend import is_live
from dtlearn.viz.units import format_ratio, format_seconds

_PLACEHOLDER = "(measured when you run this cell)"


def show_timing(label: str, seconds: float) -> None:
    """Print how long something took; a headless run prints a placeholder for the number.

    Args:
        label: what was timed.
        seconds: how long it took.
    """
    print(f"{label}: {format_seconds(seconds) if is_live() else _PLACEHOLDER}")


def show_ratio(label: str, seconds: float, baseline: str, baseline_seconds: float) -> None:
    """Print two times and how many times as fast the first is; a headless run prints a placeholder.

    Args:
        label: what was timed.
        seconds: how long it took.
        baseline: what it is compared with.
        baseline_seconds: how long that took.

    Raises:
        ValueError: a time is not above zero, so there is no ratio.
    """
    if seconds <= 0 or baseline_seconds <= 0:
        raise ValueError(f"times must be above 0 seconds, not {seconds} and {baseline_seconds}")
    if not is_live():
        print(f"{label} against {baseline}: {_PLACEHOLDER}")
        return
    ratio = baseline_seconds / seconds
    words = f"{format_ratio(ratio)} as fast" if ratio >= 1 else f"{format_ratio(1 / ratio)} as slow"
    print(f"{label}: {format_seconds(seconds)}. {baseline}: {format_seconds(baseline_seconds)}. {label} is {words}.")
