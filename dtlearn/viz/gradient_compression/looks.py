"""What the pictures of this chapter share: a look for each of ten methods, and running means."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..style import LINE_LOOKS

# Colour, dashes and marker, as LINE_LOOKS, for more lines; markers tell apart where colours are greys.
METHOD_LOOKS: tuple[tuple[str, Any, str], ...] = (
    (LINE_LOOKS[4][0], "-", "h"),
    *((color, dashes, marker) for color, dashes, marker in LINE_LOOKS[:4]),
    ("#E69F00", "-", "P"),
    ("#56B4E9", (0, (5, 1.5)), "X"),
    ("#882255", "-", "v"),
    ("#999933", (0, (1.5, 1.2)), "*"),
    ("#44AA99", (0, (5, 1.5, 1, 1.5)), "<"),
)


def running_mean(values: Sequence[float], window: int) -> list[float]:
    """The mean of each value and of those before it, `window` of them: shorter by `window - 1`."""
    return [sum(values[end - window : end]) / window for end in range(window, len(values) + 1)]


def require_methods(names: Iterable[str]) -> list[str]:
    """The names. Raises ValueError if there is none, one twice, or more than can be told apart."""
    found = list(names)
    if not 1 <= len(found) <= len(METHOD_LOOKS) or len(set(found)) < len(found):
        raise ValueError(f"1 to {len(METHOD_LOOKS)} methods of different names are needed; got {found}")
    return found
