"""Numbers and words as they have to be: others are refused where they come in, before anything is computed."""

from __future__ import annotations

import math
from collections.abc import Collection

MOST = 10**12  # of any count: what is above is a slip of the keyboard, and no float of a plan has digits for it


def check_whole(owner: str, least: int = 1, most: int = MOST, **counts: object) -> None:
    """Refuse anything but whole numbers from `least` to `most`: text, fractions, infinity.

    Args:
        owner: of the numbers, as messages begin.
        least, most: the bounds.
        counts: by name.

    Raises:
        ValueError: names the first value that is refused.
    """
    for name, value in counts.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ValueError(f"{owner}: {name} must be a whole number of {least} or more; got {value!r}")
        if value > most:
            raise ValueError(f"{owner}: {name} must be {most:,} at most; got {_short(value)}")


def check_positive(owner: str, zero: bool = False, **values: object) -> None:
    """Refuse anything but numbers above 0, so also NaN; infinity is allowed, for a link without limit, say.

    Args:
        owner: of the numbers, as messages begin.
        zero: whether 0 is allowed, too.
        values: by name.

    Raises:
        ValueError: names the first value that is refused.
    """
    for name, value in values.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)
        if not is_number or value < 0 or (value == 0 and not zero):  # type: ignore[operator]
            raise ValueError(f"{owner}: {name} must be a number {'of 0 or more' if zero else 'above 0'}; got {value!r}")


def check_word(name: str, value: object, words: Collection[object]) -> None:
    """Refuse a value that is not among the known ones.

    Raises:
        ValueError: lists the known ones.
    """
    if not any(type(value) is type(word) and value == word for word in words):  # True and 1.0 are not 1
        known = ", ".join(str(word) or '""' for word in words)
        raise ValueError(f"{name} must be one of {known}; got {value!r}")


def divisors(number: int, most: int | None = None) -> list[int]:
    """The divisors of a number in ascending order: all of them, or those up to `most`."""
    small = [n for n in range(1, math.isqrt(number) + 1) if number % n == 0]
    found = sorted({*small, *(number // n for n in small)})
    return found if most is None else [n for n in found if n <= most]


def nearest(values: Collection[int], wanted: int) -> list[int]:
    """The next smaller and the next larger value, as far as there are any."""
    below, above = [n for n in values if n < wanted], [n for n in values if n > wanted]
    return ([max(below)] if below else []) + ([min(above)] if above else [])


def _short(value: int) -> str:
    digits = len(str(value)) if value.bit_length() < 10_000 else value.bit_length() * 3 // 10
    return str(value) if digits < 20 else f"a number of about {digits} digits"
