"""Compares what the ranks returned with what they should have, and says what kind of difference it is.

"Wrong" helps nobody. "Exactly 4 times the reference, on every rank, and 4 is the world size" names the bug. Runs in
the judge, on values that `plain_values.load` made.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import permutations
from typing import Any

import torch

from ...runtime.words import ranks_text
from ..check import Case, Check, Finding, Given
from .given_values import mistaken_for

Near = Callable[[Any, Any], bool]  # whether two values are the same, within the check's tolerances
_MOST_CHARACTERS = 200
_READ_EARLY = (
    "Was the result of an asynchronous call read before wait()? Or was memory of torch.empty or torch.empty_like never "
    "written? While you are graded both hold NaN."
)
_NO_VALUE = "0 / 0 is NaN, the mean of an empty tensor is, and memory of torch.empty that nobody wrote may be."


def compare(check: Check, case: Case, given: Given, expected: Sequence[Any], got: Sequence[Any]) -> Finding | None:
    """None if every rank returned what it should; otherwise the most telling difference."""

    def near(right: Any, have: Any) -> bool:
        return not difference(right, have, check.rtol, check.atol)

    def fits(candidate: Sequence[Any]) -> bool:
        return all(near(c, g) for c, g in zip(candidate, got, strict=True))

    compared = ((r, difference(expected[r], got[r], check.rtol, check.atol)) for r in range(case.world_size))
    kinds = {rank: finding for rank, finding in compared if finding}
    if not kinds:
        return None
    wrong = list(kinds)
    rank, plain = wrong[0], kinds[wrong[0]]
    where = "on every rank" if len(wrong) == case.world_size else f"on {ranks_text(wrong)}"
    alike = [r for r, other in kinds.items() if other.code == plain.code]
    if alike != wrong:  # "is None (on every rank)" would be untrue
        where = f"on {ranks_text(alike)}; wrong in another way on {ranks_text([r for r in wrong if r not in alike])}"
    if case.world_size == 1:  # nobody asks on which
        where = ""
    shown = where
    if alike == wrong and {other.text for other in kinds.values()} != {plain.text}:  # others have other numbers
        shown = f"on rank {rank}; wrong on {ranks_text(wrong[1:])} too"
    nan, headline = plain.code == "DTL-VALUE-NAN", f"{plain.text} ({shown})" if shown else plain.text
    if nan and not check.stress.poison:
        return Finding(plain.code, headline, rank, None, _NO_VALUE)
    for mistake in check.mistakes(case, given) if check.mistakes else ():
        if fits(mistake.values):  # with poison it may be one that leaves memory unwritten
            return Finding(mistake.code, mistake.text, rank)
    if nan:
        return Finding(plain.code, headline, rank, None, _READ_EARLY)
    if plain.code != "DTL-VALUE":  # another type, shape or length: no arithmetic to do
        return Finding(plain.code, headline, rank, None, plain.advice)
    names = {case.world_size: "the world size", **(check.factors(case) if check.factors else {})}
    pairs = [(expected[r], got[r]) for r in wrong]
    if finding := _factor(case.world_size, names, pairs, rank, where, near):
        return finding
    if finding := _untouched(case.world_size, given, got, wrong, near):
        return finding
    if finding := _moved(case.world_size, expected, got, wrong, fits):
        return finding
    if text := mistaken_for(expected[rank], got[rank], given, near):
        return Finding(
            "DTL-VALUE-PERMUTED", f"on rank {rank} {text}", rank, None, where and f"The result is wrong {where}."
        )
    if check.task_text:  # each rank has a task of its own: that another one is right says nothing about this one
        return Finding(plain.code, headline, rank)
    if len(wrong) == case.world_size - 1 and (case.world_size > 2 or wrong == [1]):
        (right,) = set(range(case.world_size)) - set(wrong)
        advice = f"Rank {right} alone is right: did the others get the result too?"
        return Finding("DTL-VALUE-ONE-RANK", f"only rank {right} has the right result: {headline}", rank, None, advice)
    advice = "The other ranks are right: look for what this rank does differently." if len(wrong) < len(got) else ""
    return Finding("DTL-VALUE", headline, rank, None, advice)


def difference(expected: Any, got: Any, rtol: float, atol: float, path: str = "the result") -> Finding | None:
    """The first difference between two values, as a sentence."""
    if got is None and expected is not None:
        advice = "Is a `return` missing?" if path == "the result" else ""
        return Finding("DTL-VALUE-NONE", f"{path} is None", advice=advice)
    if isinstance(expected, torch.Tensor):
        return _tensor_difference(expected, got, rtol, atol, path)
    if isinstance(expected, Mapping):
        if not isinstance(got, Mapping):
            return Finding("DTL-VALUE-TYPE", f"{path} should be a dict; it is {_kind(got)}")
        if set(got) != set(expected):
            text = f"{path} should have the keys {_short(list(expected))}; it has {_short(list(got))}"
            return Finding("DTL-VALUE-SHAPE", text)
        pairs = [(expected[k], got[k], f"{path}[{k!r}]") for k in expected]
    elif isinstance(expected, list | tuple):
        if not isinstance(got, list | tuple):
            return Finding("DTL-VALUE-TYPE", f"{path} should be a list of {len(expected)}; it is {_kind(got)}")
        if len(got) != len(expected):
            return Finding("DTL-VALUE-SHAPE", f"{path} should have {len(expected)} parts; it has {len(got)}")
        pairs = [(e, g, f"{path}[{i}]") for i, (e, g) in enumerate(zip(expected, got, strict=True))]
    else:
        return _scalar_difference(expected, got, rtol, atol, path)
    return next((d for e, g, p in pairs if (d := difference(e, g, rtol, atol, p))), None)


def _scalar_difference(expected: Any, got: Any, rtol: float, atol: float, path: str) -> Finding | None:
    if isinstance(got, torch.Tensor) and isinstance(expected, int | float):
        advice = "tensor.item() is the number in a tensor of one element."
        return Finding("DTL-VALUE-TYPE", f"{path} should be {_kind(expected)}; it is a tensor", advice=advice)
    numbers = isinstance(expected, int | float) and not isinstance(expected, bool)
    if numbers and isinstance(got, int | float) and not isinstance(got, bool):
        if isinstance(expected, int) and isinstance(got, int):
            right = expected == got
        else:
            both_nan = got != got and expected != expected
            near = abs(_float(got) - expected) <= atol + rtol * abs(expected) < float("inf")
            right = got == expected or near or both_nan
        if not right and got != got:
            return Finding("DTL-VALUE-NAN", f"{path} is NaN")
        return None if right else Finding("DTL-VALUE", f"{path} should be {_number(expected)}; it is {_number(got)}")
    if type(got) is not type(expected):
        return Finding("DTL-VALUE-TYPE", f"{path} should be {_kind(expected)}; it is {_kind(got)}")
    return None if got == expected else Finding("DTL-VALUE", f"{path} should be {expected!r}; it is {_short(got)}")


def _tensor_difference(expected: torch.Tensor, got: Any, rtol: float, atol: float, path: str) -> Finding | None:
    if not isinstance(got, torch.Tensor):
        return Finding("DTL-VALUE-TYPE", f"{path} should be a tensor; it is {_kind(got)}")
    if got.shape != expected.shape:
        text = f"{path} should have the shape {tuple(expected.shape)}; it has {tuple(got.shape)}"
        if expected.dim() > 1 and got.shape == expected.mT.shape:
            return Finding("DTL-VALUE-TRANSPOSED", f"{text}: it is transposed")
        return Finding("DTL-VALUE-SHAPE", text)
    if got.dtype != expected.dtype:
        return Finding("DTL-VALUE-DTYPE", f"{path} should be {expected.dtype}; it is {got.dtype}")
    if torch.equal(got, expected):  # as it often is, at a twentieth of what isclose() costs
        return None
    exact = not expected.dtype.is_floating_point and not expected.dtype.is_complex
    off = got != expected if exact else ~torch.isclose(got, expected, rtol=rtol, atol=atol, equal_nan=True)
    if not bool(off.any()):
        return None
    if got.is_floating_point() and bool((got.isnan() & ~expected.isnan()).any()):
        some = f"{int(got.isnan().sum())} of {got.numel()} elements of {path} are NaN"
        return Finding("DTL-VALUE-NAN", some if got.dim() else f"{path} is NaN")
    if not got.dim():
        return Finding("DTL-VALUE", f"{path} should be {expected.item():.6g}; it is {got.item():.6g}")
    at = tuple(int(i) for i in off.nonzero()[0])
    text = f"{int(off.sum())} of {off.numel()} elements of {path} are wrong; the first, at {at}, should be "
    return Finding("DTL-VALUE", f"{text}{expected[at].item():.6g} and is {got[at].item():.6g}")


def _factor(
    n: int, names: Mapping[float, str], pairs: Sequence[tuple[Any, Any]], rank: int, where: str, near: Near
) -> Finding | None:
    """Off by the same number everywhere? `pairs`: what the wrong ranks should have, and have."""
    where = f" {where}" if where else ""
    for number, name in names.items():
        ways = ((number, f"exactly {number:g}x"), (1 / number if number else 0, f"exactly 1/{number:g} of"))
        for factor, text in ways:
            scaled = [_times(right, factor) for right, _ in pairs]
            zero = all(not difference(right, s, 0, 0) for (right, _), s in zip(pairs, scaled, strict=True))
            if factor in (0, 1) or zero:
                continue
            if all(near(s, have) for (_, have), s in zip(pairs, scaled, strict=True)):
                advice = "You summed and did not average." if factor > 1 else "You divided once too often."
                text = f"the result is {text} the reference{where}; {number:g} is {name}"
                return Finding("DTL-VALUE-FACTOR", text, rank, None, advice if number == n else "")
    if all(near(_times(right, -1), have) for right, have in pairs):
        return Finding("DTL-VALUE-SIGN", f"the result has the wrong sign{where}", rank)
    return None


def _moved(
    n: int, expected: Sequence[Any], got: Sequence[Any], wrong: list[int], fits: Callable[[Sequence[Any]], bool]
) -> Finding | None:
    """Right values on the wrong ranks, or parts of a tensor in the wrong order?"""
    orders = list(permutations(range(n))) if n <= 4 else [tuple((r + k) % n for r in range(n)) for k in range(1, n)]
    for order in orders:
        if list(order) != list(range(n)) and fits([expected[order[r]] for r in range(n)]):
            holds = ", ".join(f"rank {r} has rank {order[r]}'s" for r in wrong[:4])
            return Finding("DTL-VALUE-PERMUTED", f"the values are right, on the wrong ranks: {holds}", wrong[0])
    rank = wrong[0]
    right, have = expected[rank], got[rank]
    if isinstance(right, torch.Tensor) and right.dim() and right.shape[0] % n == 0 and n > 1 and right.numel():
        parts, places = right.chunk(n), []
        for part in have.chunk(n):
            places.append(next((i for i, p in enumerate(parts) if not difference(p, part, 1e-5, 1e-6)), None))
        if None not in places and places != list(range(n)):
            text = f"the {n} parts of the result are in the order {places} on rank {rank}"
            return Finding("DTL-VALUE-PERMUTED", text, rank)
    square = isinstance(right, torch.Tensor) and right.dim() == 2 and right.shape[0] == right.shape[1]
    if square and not difference(right.mT, have, 1e-5, 1e-6):
        return Finding("DTL-VALUE-TRANSPOSED", f"the result is transposed on rank {rank}", rank)
    return None


def _untouched(n: int, given: Given, got: Sequence[Any], wrong: list[int], near: Near) -> Finding | None:
    """Wrong ranks that still have what they were given?"""
    name = next((name for name in given[0] if all(near(given[r][name], got[r]) for r in wrong)), None)
    if name is None:
        return None
    who = "every rank" if len(wrong) == n else ranks_text(wrong)
    text = f"{who} still has its own {name}: nothing reached it"
    if 1 < len(wrong) < n:
        text = f"{who} still have their own {name}: nothing reached them"
    return Finding("DTL-VALUE-STALE", text, wrong[0])


def _times(value: Any, factor: float) -> Any:
    """A value with every floating-point number in it multiplied."""
    if isinstance(value, torch.Tensor):
        return value * factor if value.is_floating_point() else value
    if isinstance(value, Mapping):
        return {k: _times(v, factor) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_times(v, factor) for v in value]
    return value * factor if isinstance(value, float) else value


def _float(value: int | float) -> float:
    try:
        return float(value)
    except OverflowError:  # a whole number with hundreds of digits
        return float("inf")


def _number(value: int | float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.6g}"


def _kind(value: Any) -> str:
    names = {type(None): "None", bool: "a truth value", int: "a whole number", float: "a number", str: "a text"}
    for kind, name in ((torch.Tensor, "a tensor"), (list, "a list"), (Mapping, "a dict")):
        if isinstance(value, kind):
            return name
    return names.get(type(value), type(value).__name__)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _MOST_CHARACTERS else text[: _MOST_CHARACTERS - 3] + "..."
