"""Refusals of numbers that are none: in a sentence, before anything starts."""

from __future__ import annotations

import math
from typing import Any


def is_whole(value: Any) -> bool:
    """Whether it is an int, and no bool: `True` is 1 to Python, and a slip in a size."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    """Whether it is a finite int or float, and no bool."""
    return is_whole(value) or (isinstance(value, float) and math.isfinite(value))


def require_whole(name: str, value: Any, least: int = 1) -> None:
    """Refuse what is no whole number of `least` or more.

    Raises:
        ValueError: with the name, what it must be, and what came.
    """
    if not is_whole(value):
        raise ValueError(f"{name} must be a whole number, got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be {least} or more, got {value}")


def require_number(name: str, value: Any, least: float = 0) -> None:
    """Refuse what is no finite number of `least` or more.

    Raises:
        ValueError: with the name, what it must be, and what came.
    """
    if not is_number(value) or value < least:
        raise ValueError(f"{name} must be a finite number of {least} or more, got {value!r}")


def require_flag(name: str, value: Any) -> None:
    """Refuse what is neither True nor False.

    Raises:
        ValueError: with the name and what came.
    """
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be True or False, got {value!r}")
