"""Quantities in the words of the course: bytes and seconds to text, and a learner's text to a number.

Prefixes are decimal (1 kB = 1000 bytes), as for link bandwidth; the binary ones are read when written as KiB, MiB, GiB.
"""

from __future__ import annotations

import re

from dtlearn.runtime.words import format_seconds, significant

_BYTE_STEPS = (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3))

_BYTE_UNITS = {"b": 1.0, "byte": 1.0, "bytes": 1.0}
_BYTE_UNITS |= {f"{p}b": 1000.0**i for i, p in enumerate("kmgt", start=1)}
_BYTE_UNITS |= {f"{p}ib": 1024.0**i for i, p in enumerate("kmgt", start=1)}
_SECOND_UNITS = {"s": 1.0, "second": 1.0, "seconds": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_SECOND_UNITS |= {"min": 60.0, "minutes": 60.0, "h": 3600.0, "hours": 3600.0, "days": 86400.0}
_COUNTS = {"thousand": 1e3, "million": 1e6, "billion": 1e9, "trillion": 1e12}

_NUMBER = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)\s*([^\d\s,].*)?", re.IGNORECASE)
_GROUPED = re.compile(r"(?<=\d)[,_ ](?=\d{3}(?!\d))")


def format_bytes(nbytes: float) -> str:
    """Bytes as text: exact below 1000, three significant digits above ("37.7 kB", "8.39 MB")."""
    for name, step in _BYTE_STEPS:
        if abs(nbytes) >= step:
            return f"{significant(nbytes / step)} {name}"
    return f"{significant(nbytes)} byte{'' if nbytes == 1 else 's'}"


def format_ratio(ratio: float) -> str:
    """A ratio as text: "2x", "0.25x", "1,024x"."""
    return f"{significant(ratio)}x"


def format_quantity(value: float, unit: str = "") -> str:
    """A value with its unit. Seconds, and bytes from a million up, get the prefix that fits; fewer bytes stay exact."""
    if unit == "bytes" and (abs(value) >= 1e6 or not float(value).is_integer()):
        return format_bytes(value)
    if unit == "seconds":
        return format_seconds(value)
    number = f"{value:,.0f}" if float(value).is_integer() and abs(value) < 1e15 else significant(value, 4)
    return f"{number} {unit}".rstrip()


def parse_quantity(text: str, unit: str = "") -> float:
    """Read a number as people write it: "4096", "4,096", "4 MiB", "1.5e6", "20 ms", "3 million".

    Args:
        text: what the learner wrote.
        unit: the unit of the result: "bytes", "seconds", or any other word.

    Returns:
        The value in `unit`.

    Raises:
        ValueError: the text is not a number, or is in a unit that does not fit.
    """
    plain = _GROUPED.sub("", text.strip())
    match = _NUMBER.fullmatch(plain)
    if match is None:
        hint = " Use a point for decimals." if "," in plain else ""
        raise ValueError(f"{text.strip()!r} is not a number.{hint}")
    value, suffix = float(match[1]), (match[2] or "").strip().lower()
    known = {"": 1.0, unit.lower(): 1.0, **_COUNTS}
    known |= {"bytes": _BYTE_UNITS, "seconds": _SECOND_UNITS}.get(unit, {})
    if suffix not in known:
        raise ValueError(f"{match[2]!r} is not a unit of {unit or 'a plain number'}.")
    return value * known[suffix]
