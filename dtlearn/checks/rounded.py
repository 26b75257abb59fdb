"""Results that are right but for the digits that 16 bits cannot hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from dtlearn.grading import Finding, difference
from dtlearn.runtime.record.record import Record

# bfloat16 keeps 8 binary digits, float16 11: a rounding is off by up to 2**-9, and a sum of a few by a little more.
_CLOSE = 0.02


def rounded(found: Finding, expected: Sequence[Any], got: Sequence[Any]) -> Finding:
    """A finding that names the rounding, if that is the only difference; otherwise the one given.

    Args:
        found: what `compare` made of a result that is wrong.
        expected, got: what each rank should have and has, by rank.
    """
    if found.code != "DTL-VALUE" or any(difference(e, g, _CLOSE, _CLOSE) for e, g in zip(expected, got, strict=True)):
        return found
    text = f"right to two or three digits only, as if rounded to 16 bits (float16, bfloat16) on the way: {found.text}"
    return replace(found, code="DTL-VALUE-ROUNDED", text=text)


def rounded_in_messages(found: Finding, expected: Sequence[Any], got: Sequence[Any], record: Record) -> Finding:
    """The same of a run, where it is the rounding only if a message had numbers of 16 bits."""
    is_half = any(event.dtype in ("bfloat16", "float16") for event in record)
    return rounded(found, expected, got) if is_half else found
