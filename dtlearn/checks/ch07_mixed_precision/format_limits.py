"""ch07.format_limits: formats that exist, and formats of random sizes; each number is looked at by itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from dtlearn.grading import Case, Check, Finding, Given, compare, rules
from dtlearn.runtime.record.record import Record

# Bits of exponent and of mantissa, one pair per rank; "random": as many as there are ranks; `left_out`: the answer is
# called without has_infinity.
_CASES: dict[str, dict[str, Any]] = {
    "FP16, BF16, FP8 E5M2, FP32": {"bits": [(5, 10), (8, 7), (5, 2), (8, 23)], "has_infinity": True},
    "formats that nobody has built": {"bits": "random", "has_infinity": True},
    "formats without infinity that nobody has built": {"bits": "random", "has_infinity": False},
    "few bits": {"bits": [(2, 2), (2, 1), (4, 1), (8, 1)], "has_infinity": True, "left_out": True},
    "FP8 E4M3 and others without infinity": {"bits": [(4, 3), (5, 2), (3, 4), (8, 7)], "has_infinity": False},
    "without infinity, one bit of mantissa": {"bits": [(2, 1), (3, 1), (5, 1), (8, 1)], "has_infinity": False},
}
_LARGEST, _NORMAL, _SUBNORMAL, _EPSILON = KEYS = ("largest", "smallest_normal", "smallest_subnormal", "epsilon")


def inputs(case: Case) -> Given:
    bits = case.params["bits"]
    if bits == "random":
        g = case.generator()
        exponents = torch.randperm(5, generator=g)[: case.world_size] + 3  # 3 to 7, all different
        mantissas = torch.randperm(20, generator=g)[: case.world_size] + 2  # 2 to 21
        bits = list(zip(exponents.tolist(), mantissas.tolist(), strict=True))
    names = ("exponent_bits", "mantissa_bits")
    pairs = bits[: case.world_size]
    rest = {"has_infinity": case.params["has_infinity"], "left_out": case.params.get("left_out", False)}
    return [dict(zip(names, pair, strict=True)) | rest for pair in pairs]


def on_rank(answer: Any, exponent_bits: int, mantissa_bits: int, has_infinity: bool, left_out: bool) -> Any:
    limits = answer(exponent_bits, mantissa_bits, **({} if left_out else {"has_infinity": has_infinity}))
    if not isinstance(limits, dict):
        return limits
    return {key: float(value) if type(value) is int else value for key, value in limits.items()}


def expected(case: Case, given: Given) -> list[dict[str, float]]:
    return [_limits(i) for i in given]


def _limits(i: dict[str, Any]) -> dict[str, float]:
    e, m, infinity = i["exponent_bits"], i["mantissa_bits"], i["has_infinity"]
    smallest = {_NORMAL: 2.0 ** (1 - _bias(e)), _SUBNORMAL: 2.0 ** (1 - _bias(e) - m)}
    return {**smallest, _EPSILON: 2.0**-m, _LARGEST: _largest(e, m, infinity, _bias(e))}


def _bias(e: int) -> int:
    return (1 << (e - 1)) - 1


def _largest(e: int, m: int, infinity: bool, bias: int) -> float:
    last_exponent = (1 << e) - (2 if infinity else 1) - bias
    return (2 - (1 if infinity else 2) * 2.0**-m) * 2.0**last_exponent


@dataclass(frozen=True)
class _Wrong:
    """Numbers that a mistake leads to: `values` makes them of E, M and whether there is infinity."""

    code: str
    text: str
    values: Callable[[int, int, bool], dict[str, float]]


def _with_bias(bias_of: Callable[[int], int]) -> Callable[[int, int, bool], dict[str, float]]:
    def values(e: int, m: int, infinity: bool) -> dict[str, float]:
        return {_LARGEST: _largest(e, m, infinity, bias_of(e)), _NORMAL: 2.0 ** (1 - bias_of(e))}

    return values


def _one(key: str, value: Callable[[int, int, bool], float]) -> Callable[[int, int, bool], dict[str, float]]:
    return lambda e, m, infinity: {key: value(e, m, infinity)}


# In this order: the first that fits all ranks is told.
_WRONG = [
    _Wrong(
        "DTL-VALUE-SWAPPED",
        "all four numbers are those of a format with the two widths exchanged: exponent_bits comes first",
        # With wider exponents the answer itself raises OverflowError.
        lambda e, m, infinity: _limits({"exponent_bits": min(m, 10), "mantissa_bits": e, "has_infinity": infinity}),
    ),
    _Wrong(
        "DTL-VALUE-ARGUMENT-IGNORED",
        "these are the limits of FP16 whatever the arguments are",
        lambda e, m, infinity: _limits({"exponent_bits": 5, "mantissa_bits": 10, "has_infinity": True}),
    ),
    _Wrong(
        "DTL-VALUE-BIAS",
        "the bias is 2^(E - 1) here, one too many: largest and smallest normal number are half of what they should be",
        _with_bias(lambda e: 2 ** (e - 1)),
    ),
    _Wrong(
        "DTL-VALUE-BIAS",
        "the bias is 2^(E - 1) here, one too many: the smallest normal number is half of what it should be, and the "
        "largest number, if its exponent is b, twice",
        lambda e, m, infinity: {_LARGEST: 2 * _largest(e, m, infinity, _bias(e)), _NORMAL: 2.0 ** -_bias(e)},
    ),
    _Wrong("DTL-VALUE-BIAS", "the bias is 2^E - 1 here; it is 2^(E - 1) - 1", _with_bias(lambda e: 2**e - 1)),
    _Wrong("DTL-VALUE-BIAS", "there is no bias here: e - b with b = 2^(E - 1) - 1", _with_bias(lambda e: 0)),
    _Wrong(
        "DTL-VALUE-EPSILON",
        "epsilon is half of what it should be: the next number after 1 is one step of the mantissa away, 2^-M; half of "
        "that is the largest rounding error",
        _one(_EPSILON, lambda e, m, _: 2.0 ** (-m - 1)),
    ),
    _Wrong(
        "DTL-VALUE-EPSILON",
        "epsilon is twice what it should be: all M bits are stored, the leading 1 is not among them",
        _one(_EPSILON, lambda e, m, _: 2.0 ** (1 - m)),
    ),
    _Wrong(
        "DTL-VALUE-EPSILON",
        "epsilon is the smallest positive number here; it is the distance of the numbers near 1",
        _one(_EPSILON, lambda e, m, _: 2.0 ** (1 - _bias(e) - m)),
    ),
    _Wrong(
        "DTL-VALUE-INFINITY",
        "largest is twice what it should be: the last exponent field, all bits 1, is infinity and NaN, not a number",
        _one(_LARGEST, lambda e, m, infinity: (2 - 2.0**-m) * 2.0 ** (_bias(e) + 1) if infinity else 0.0),
    ),
    _Wrong(
        "DTL-VALUE-INFINITY",
        "has_infinity=False is ignored: the last exponent field, all bits 1, holds numbers here",
        _one(_LARGEST, lambda e, m, infinity: 0.0 if infinity else (2 - 2.0**-m) * 2.0 ** _bias(e)),
    ),
    _Wrong(
        "DTL-VALUE-INFINITY",
        "largest is the pattern of all ones, which is NaN without infinity: the mantissa before it is the largest",
        _one(_LARGEST, lambda e, m, infinity: 0.0 if infinity else (2 - 2.0**-m) * 2.0 ** (_bias(e) + 1)),
    ),
    _Wrong(
        "DTL-VALUE-INFINITY",
        "largest should have one exponent more: without infinity the last exponent field holds numbers too",
        _one(_LARGEST, lambda e, m, infinity: 0.0 if infinity else (2 - 2 * 2.0**-m) * 2.0 ** _bias(e)),
    ),
    _Wrong(
        "DTL-VALUE-INFINITY",
        "largest is that of the same format without infinity; has_infinity is True here, and so it is where it is left "
        "out",
        _one(_LARGEST, lambda e, m, infinity: (2 - 2 * 2.0**-m) * 2.0 ** (_bias(e) + 1) if infinity else 0.0),
    ),
    _Wrong(
        "DTL-VALUE-LARGEST-FINITE",
        "largest has no mantissa: it is a power of two, but the largest number has the largest mantissa too",
        _one(_LARGEST, lambda e, m, infinity: 2.0 ** (_bias(e) + (not infinity))),
    ),
    _Wrong(
        "DTL-VALUE-LARGEST-FINITE",
        "largest is a power of two above the largest number: 1 + m / 2^M is always below 2",
        _one(_LARGEST, lambda e, m, infinity: 2.0 ** (_bias(e) + 1 + (not infinity))),
    ),
    _Wrong(
        "DTL-VALUE-NORMAL",
        "smallest_normal has the exponent field 0, which is that of the subnormal numbers: the first normal field is 1",
        _one(_NORMAL, lambda e, m, _: 2.0 ** -_bias(e)),
    ),
    _Wrong(
        "DTL-VALUE-NORMAL",
        "smallest_normal is the smallest number of all here; a normal number has an exponent field of 1 or more",
        _one(_NORMAL, lambda e, m, _: 2.0 ** (1 - _bias(e) - m)),
    ),
    _Wrong(
        "DTL-VALUE-SUBNORMAL",
        "smallest_subnormal is half of what it should be: subnormal numbers have the exponent 1 - b, not 0 - b",
        _one(_SUBNORMAL, lambda e, m, _: 2.0 ** (-_bias(e) - m)),
    ),
    _Wrong(
        "DTL-VALUE-SUBNORMAL",
        "smallest_subnormal is the smallest normal number: with e = 0 there are smaller ones, down to m = 1",
        _one(_SUBNORMAL, lambda e, m, _: 2.0 ** (1 - _bias(e))),
    ),
    _Wrong(
        "DTL-VALUE-SUBNORMAL",
        "smallest_subnormal is half of the smallest normal number: m / 2^M goes down to 1 / 2^M",
        _one(_SUBNORMAL, lambda e, m, _: 2.0 ** -_bias(e)),
    ),
    _Wrong(
        "DTL-VALUE-SUBNORMAL",
        "smallest_subnormal is 0, which is not positive: take m = 1",
        _one(_SUBNORMAL, lambda e, m, _: 0.0),
    ),
]


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    """Compares; numbers that are wrong by the first mistake that explains them on every rank."""
    right = expected(case, given)
    found = compare(_VALUES, case, given, right, got)
    if found is None or not all(_are_numbers(limits) for limits in got):
        return found
    for wrong in _WRONG:
        made = [wrong.values(i["exponent_bits"], i["mantissa_bits"], i["has_infinity"]) for i in given]
        if made[0].items() <= right[0].items() and all(
            m.items() <= r.items() for m, r in zip(made, right, strict=True)
        ):
            continue  # no mistake in these formats
        if all(limits[key] == value for limits, m in zip(got, made, strict=True) for key, value in m.items()):
            return Finding(wrong.code, wrong.text, _first_wrong(right, got))
    if found.code == "DTL-VALUE":  # without "on rank 2": each rank has a format of its own
        rank = _first_wrong(right, got)
        key = next(key for key in KEYS if got[rank][key] != right[rank][key])
        text = f"{key} should be {right[rank][key]!r} with E = {given[rank]['exponent_bits']} and "
        return replace(found, text=f"{text}M = {given[rank]['mantissa_bits']}; it is {got[rank][key]!r}", rank=rank)
    return found


def _are_numbers(limits: Any) -> bool:
    return isinstance(limits, dict) and set(limits) == set(KEYS) and all(type(v) is float for v in limits.values())


def _first_wrong(right: list[dict[str, float]], got: list[Any]) -> int:
    return next(rank for rank, limits in enumerate(got) if limits != right[rank])


def task_text(case: Case, given: Given, rank: int) -> str:
    i = given[rank]
    names = ("exponent_bits", "mantissa_bits", *(() if i["left_out"] else ("has_infinity",)))
    return ", ".join(f"{name}={i[name]}" for name in names)


_VALUES = Check(on_rank, inputs, expected, cases=_CASES, task_text=task_text, rtol=0.0, atol=0.0)
CHECK = replace(_VALUES, expected=None, verify=verify, rules=[rules.most_messages("0")])
