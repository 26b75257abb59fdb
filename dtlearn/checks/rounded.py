"""Results that are right but for the digits that 16 bits, or 32, cannot hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from dtlearn.grading import Finding, difference
from dtlearn.runtime.record.record import Record

# bfloat16 keeps 8 binary digits, float16 11: a rounding is off by up to 2**-9, and a sum of a few by a little more.
_CLOSE = 0.02
_FLOAT64 = 1e-9  # float32 keeps 24 binary digits: a rounding is off by up to 6e-8


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


def rounded_to_float32(expected: Sequence[Any], got: Sequence[Any]) -> Finding | None:
    """That float64 tensors of a result which is right at large have the digits of float32; None if they have all.

    Args:
        expected, got: what each rank should have and has, by rank; they agree at a tolerance for float32.
    """
    for rank, (wanted, had) in enumerate(zip(expected, got, strict=True)):
        for right, one in _float64(wanted, had):
            if difference(right, one, _FLOAT64, 1e-12):
                text = "float64 values are right to about 7 digits only, as if rounded to float32 on the way, or with "
                text += f"something small added to them (on rank {rank})"
                return Finding("DTL-VALUE-DIGITS", text, rank)
    return None


def _float64(expected: Any, got: Any) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """The pairs of float64 tensors in two values of the same structure."""
    if isinstance(expected, torch.Tensor):
        if expected.dtype == torch.float64:
            yield expected, got
    elif isinstance(expected, Mapping):
        for key in expected:
            yield from _float64(expected[key], got[key])
    elif isinstance(expected, list | tuple):
        for one, other in zip(expected, got, strict=True):
            yield from _float64(one, other)
