"""The clock that ranks note times by: the head's.

Each machine counts its monotonic clock from its own start. A rank on another machine adds the difference that the
head measured when that machine joined; it is right to within half of the fastest round trip.
"""

import time

_ahead_ns = 0


def now_ns() -> int:
    """Nanoseconds on the head's monotonic clock."""
    return time.monotonic_ns() + _ahead_ns


def set_ahead_ns(ahead_ns: int) -> None:
    """How far the head's clock is ahead of this machine's. On the head's own machine: 0."""
    global _ahead_ns
    _ahead_ns = ahead_ns
