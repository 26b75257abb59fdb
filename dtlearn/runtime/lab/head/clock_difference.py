"""The difference between the clocks of two machines, from messages that go there and back."""

from __future__ import annotations


def ahead_of(samples: list[tuple[int, int, int]]) -> tuple[int, int]:
    """How far our clock is ahead of another one, from pings: (sent, the other's time, received), in ns.

    Returns:
        The difference, taken from the fastest round trip, and how far it may be off: half of that round trip.
    """
    sent, other, received = min(samples, key=lambda s: s[2] - s[0])
    return (sent + received) // 2 - other, (received - sent + 1) // 2
