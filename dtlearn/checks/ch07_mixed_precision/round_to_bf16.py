"""ch07.round_to_bf16: compared bit by bit, and a mistake named by the kinds of numbers that it concerns."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from dtlearn.grading import Case, Check, Finding, Given, compare, rules
from dtlearn.runtime.record.record import Record

from ..own_work import find_forbidden

_SIGN, _INFINITY, _NORMAL, _KEPT = 0x8000_0000, 0x7F80_0000, 0x0080_0000, 0xFFFF_0000
_HALF = 0x8000  # of the step between two bfloat16 numbers
_NANS = [0x7F80_0001, 0x7F80_FFFF, 0x7FC0_0000, 0x7FFF_FFFF, 0xFF80_0001, 0xFFFF_8000, 0xFFFF_FFFF]
_ENDS = [0x7F7E_8000, 0x7F7F_0000, 0x7F7F_7FFF, 0x7F7F_8000, 0x7F7F_FFFF, 0x3FFF_8000, 0x3FFF_FFFF, 0x407F_9000]
_NEAR_ZERO = [0, 1, 0x7FFF, 0x8000, 0x8001, 0x1_7FFF, 0x1_8000, 0x7F_7FFF, 0x7F_8000, 0x7F_FFFF, 0x80_0000, 0x80_8000]
_CASES: dict[str, dict[str, Any]] = {
    "ordinary numbers": {"low": [0x7FFF, 0x8001, 0x0001, 0xFFFF, 0x4000, 0xC123, 0]},
    "halfway between two": {"low": [_HALF, _HALF, _HALF, 0x7FFF, 0x8001]},
    "infinity and NaN": {"bits": [_INFINITY, _SIGN + _INFINITY, *_NANS]},
    "up to the next power of two, and beyond the largest": {"bits": [*_ENDS, *(_SIGN + bits for bits in _ENDS)]},
    "zeros and subnormal numbers": {"bits": [*_NEAR_ZERO, *(_SIGN + bits for bits in _NEAR_ZERO)]},
    "other shapes": {"low": [0x7FFF, 0x8001], "shapes": [(2, 3, 4), ()]},
    "no numbers at all, and a column": {"low": [0x7FFF, 0x8001], "shapes": [(0,), (5, 1)]},
    "a transposed matrix": {"low": [0x7FFF, 0x8001], "shapes": [(3, 4)], "transposed": True},
    "any bits": {},
}


def inputs(case: Case) -> Given:
    return [{"x": _numbers(case, rank), "transposed": "transposed" in case.params} for rank in range(case.world_size)]


def _numbers(case: Case, rank: int) -> torch.Tensor:
    g, params = case.generator(rank), case.params
    if "bits" in params:
        bits = torch.tensor(params["bits"])
        bits = bits[torch.randperm(len(bits), generator=g)]
    elif "low" in params:
        shape = params.get("shapes", [(200,)])[rank % len(params.get("shapes", [0]))]
        kept = torch.randint(0x3000, 0x5000, shape, generator=g) + 0x8000 * torch.randint(2, shape, generator=g)
        low = torch.tensor(params["low"])
        bits = (kept << 16) + low[torch.randint(len(low), shape, generator=g)]
    else:
        bits = torch.randint(1 << 32, (4000,), generator=g)
    return bits.to(torch.int32).view(torch.float32)


def on_rank(answer: Any, x: torch.Tensor, transposed: bool) -> Any:
    import threading

    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    class Watch(TorchDispatchMode):
        """Notes whether a tensor has the type that the exercise rules out."""

        seen = False

        def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            made = op(*args, **(kwargs or {}))
            tensors = tree_leaves((made, args, kwargs))  # also of lists, which the _foreach_ operations have
            Watch.seen |= any(getattr(t, "dtype", None) == torch.bfloat16 for t in tensors)
            return made

    run = threading.Thread.run

    def watched(self: Any) -> None:
        with Watch():  # a mode holds for one thread
            run(self)

    threading.Thread.run = watched  # type: ignore[method-assign]
    try:
        with Watch():
            made = answer(x.mT if transposed else x)
    finally:
        threading.Thread.run = run  # type: ignore[method-assign]
    if made is x or (isinstance(made, torch.Tensor) and made.numel() and made.data_ptr() == x.data_ptr()):
        made = "x itself"
    return {"rounded": made, "used bfloat16": Watch.seen}


def expected(case: Case, given: Given) -> list[Any]:
    return [_float(_rounded(_bits(i["x"].mT if i["transposed"] else i["x"]))) for i in given]


def _bits(x: torch.Tensor) -> torch.Tensor:
    """As whole numbers from 0 to 2^32 - 1."""
    return x.contiguous().view(torch.int32).long() & 0xFFFF_FFFF


def _float(bits: torch.Tensor) -> torch.Tensor:
    return bits.to(torch.int32).view(torch.float32)


def _rounded(bits: torch.Tensor, dropped: int = 16) -> torch.Tensor:
    """To nearest, ties to even, without so many bits at the end; NaN as one NaN."""
    return torch.where(_is_nan(bits), 0x7FC0_0000, _carried(bits, dropped))


def _carried(bits: torch.Tensor, dropped: int) -> torch.Tensor:
    odd = (bits >> dropped) & 1
    return (bits + (1 << (dropped - 1)) - 1 + odd) >> dropped << dropped


def _is_nan(bits: torch.Tensor) -> torch.Tensor:
    return bits & ~_SIGN > _INFINITY


@dataclass(frozen=True)
class _Wrong:
    """Another rounding of all numbers (but NaN), with its name."""

    code: str
    text: str
    rounded: Callable[[torch.Tensor], torch.Tensor]


_WRONG = [
    _Wrong("DTL-VALUE-STALE", "nothing is rounded: the last 16 bits are as they were", lambda bits: bits),
    _Wrong(
        "DTL-VALUE-TRUNCATED",
        "the last 16 bits are cut off: that rounds towards zero, also where the next number is nearer",
        lambda bits: bits & _KEPT,
    ),
    _Wrong(
        "DTL-VALUE-TRUNCATED",
        "every number goes to the one farther from zero, also where the nearer one is before it",
        lambda bits: bits + 0xFFFF & _KEPT,
    ),
    _Wrong(
        "DTL-VALUE-KEPT-BITS",
        "rounded to 8 bits of mantissa: bfloat16 keeps 7, the leading 1 is not stored",
        lambda bits: _rounded(bits, 15),
    ),
    _Wrong(
        "DTL-VALUE-KEPT-BITS",
        "rounded to 6 bits of mantissa: bfloat16 keeps 7 of the 23, and 16 are dropped",
        lambda bits: _rounded(bits, 17),
    ),
    _Wrong(
        "DTL-VALUE-KEPT-BITS",
        "these are float16 numbers: bfloat16 has the exponent of float32, and 7 bits of mantissa",
        lambda bits: _bits(_float(bits).half().float()),
    ),
    _Wrong(
        "DTL-VALUE-CONVERTED",
        "the numbers were converted to whole numbers, `x.to(torch.int32)` or `x.int()`; `x.view(torch.int32)` has the "
        "same bits",
        lambda bits: _carried(_float(bits).int().long() & 0xFFFF_FFFF, 16) & _KEPT,
    ),
]


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    """The type that is ruled out, then type and shape, then bits."""
    for rank, result in enumerate(got):
        if result["used bfloat16"]:
            return Finding("DTL-RULE-NAME", f"rank {rank} made a tensor of type bfloat16: round on the bits", rank)
        if isinstance(result["rounded"], str):
            return Finding("DTL-VALUE-NOT-NEW", "what is returned shares the memory of x: return a new tensor", rank)
    right, made = expected(case, given), [result["rounded"] for result in got]
    found = compare(_VALUES, case, given, right, made)
    if any(not isinstance(m, torch.Tensor) or m.shape != r.shape for m, r in zip(made, right, strict=True)):
        return found
    if any(m.dtype == torch.int32 for m in made):
        text = "the result is int32, bits that are read as whole numbers; `.view(torch.float32)` reads them as float32"
        return Finding("DTL-VALUE-DTYPE", text, 0)
    if any(m.dtype != torch.float32 for m in made):
        return found
    x = torch.cat([_bits(i["x"].mT if i["transposed"] else i["x"]).flatten() for i in given])
    return _judged(x, torch.cat([_bits(m).flatten() for m in made]))


def _judged(x: torch.Tensor, got: torch.Tensor) -> Finding | None:
    """All bits of all ranks, before and after."""
    right, nan = _rounded(x), _is_nan(x)
    wrong = (got != right) & ~(nan & _is_nan(got))
    if not bool(wrong.any()):
        return None
    more_than_ties = bool((wrong & (x & 0xFFFF != _HALF)).any())  # ties alone have names of their own
    for mistake in _WRONG if more_than_ties else ():
        made = mistake.rounded(x)
        if bool(((made == got) | nan).all()) and bool(((made != right) & ~nan).any()):
            return Finding(mistake.code, f"{mistake.text}; {_example(x, got, right, wrong)}")
    kind = _kind(x, got, right, wrong)
    if kind is None:
        return Finding(
            "DTL-VALUE", f"{int(wrong.sum())} of {len(x)} numbers are wrong: {_example(x, got, right, wrong)}"
        )
    code, text = kind
    return Finding(code, f"{text}: {_example(x, got, right, wrong)}")


def _kind(x: torch.Tensor, got: torch.Tensor, right: torch.Tensor, wrong: torch.Tensor) -> tuple[str, str] | None:
    """Code and text, if all that is wrong is of one kind."""
    size, nan = x & ~_SIGN, _is_nan(x)

    def only(kind: torch.Tensor) -> bool:
        return not bool((wrong & ~kind).any())

    if only(nan):
        lost = "NaN became a number or infinity: its bits are rounded like all others, and the 1 among the last 16 is "
        return "DTL-VALUE-NAN-LOST", f"{lost}cut off, or a carry runs through the exponent into the sign"
    if only(size == _INFINITY):
        return "DTL-VALUE-INFINITY", "infinity should stay infinity"
    if only(nan | (size == _INFINITY)):
        return "DTL-VALUE-INFINITY", "infinity should stay infinity, and NaN stay NaN"
    if only(right & ~_SIGN == 0) and bool((got & ~_SIGN == 0)[wrong].all()):
        return "DTL-VALUE-MINUS-ZERO", "a zero lost its sign: -0, and what is rounded to it, stays -0"
    if only((x & 0xFFFF) == _HALF):
        ways = {"away from zero": (x + _HALF) & _KEPT, "towards zero": x & _KEPT}
        where = next((f"always go {way}" for way, to in ways.items() if bool((got == to)[wrong].all())), "")
        if bool((got != right)[(x & 0xFFFF) == _HALF].all()):
            where = "go to the odd neighbour"
        where = f"{where}, and should go to the even one" if where else "do not all go to the even neighbour"
        return "DTL-VALUE-TIES", f"only the ties are wrong; they {where}"
    if only((right & ~_SIGN == _INFINITY) & (size < _INFINITY)):
        return "DTL-VALUE-OVERFLOW", "what is rounded beyond the largest bfloat16 number is infinity"
    if only(size < _NORMAL):
        became = "became 0" if bool((got & ~_SIGN == 0)[wrong].all()) else "are wrong"
        return "DTL-VALUE-SUBNORMAL", f"subnormal numbers {became}: they are rounded like all others"
    if only(x >= _SIGN):
        return "DTL-VALUE-SIGN", "only negative numbers are wrong: the sign bit is no part of the magnitude"
    return None


def _example(x: torch.Tensor, got: torch.Tensor, right: torch.Tensor, wrong: torch.Tensor) -> str:
    """The first number that is wrong, as bits and as a number."""
    k = int(wrong.nonzero()[0])
    a, b, c = (f"{int(bits[k]):08x} ({_float(bits)[k].item():.9g})" for bits in (x, right, got))
    return f"{a} should become {b}, and became {c}"


def without_the_type(source: str) -> Finding | None:
    """A rule on the text: the type bfloat16 is taken from nowhere. What the answer calls by that name is its own."""
    tree = ast.parse(source)
    imported = {(a.asname or a.name).partition(".")[0] for a in ast.walk(tree) if isinstance(a, ast.alias)}
    for node in ast.walk(tree):
        for word in _words(node, imported):
            if word.lower().removeprefix("torch.") in ("bfloat16", "bfloat16tensor"):
                line = getattr(node, "lineno", 0)
                text = f"line {line} uses {word}, which does the rounding: the exercise is to do it on the bits"
                return Finding("DTL-RULE-NAME", text, line=line)
    return find_forbidden(
        source, dict.fromkeys(_WAYS_TO_IT, "it leads to bfloat16, or hides it: the exercise is to work on the bits")
    )


def _words(node: ast.AST, imported: set[str]) -> list[str]:
    """Names that something is taken by: from x import NAME, torch.NAME, x.NAME(), getattr(x, NAME), x.to(NAME)."""
    if isinstance(node, ast.alias):
        return [node.name]
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in imported:
        return [node.attr]
    if not isinstance(node, ast.Call):
        return []
    name = getattr(node.func, "attr", getattr(node.func, "id", ""))
    texts = [*node.args, *(keyword.value for keyword in node.keywords)]
    values = [text.value for text in texts if isinstance(text, ast.Constant) and isinstance(text.value, str)]
    return [name, *(values if name in ("getattr", "to", "type", "astype", "dtype") else [])]


# Where the default type of autocast is found, or the watch of `on_rank` is ended; and the type in numpy.
_WAYS_TO_IT = [
    "torch.get_autocast_dtype",
    "torch.get_autocast_cpu_dtype",
    "torch.get_autocast_gpu_dtype",
    "torch.utils._python_dispatch",
    "torch.utils._mode_utils",
    "torch._C",
    "ml_dtypes",
    "_thread",
]
_VALUES = Check(on_rank, inputs, expected, cases=_CASES, rtol=0.0, atol=0.0, reads=[without_the_type])
CHECK = replace(_VALUES, expected=None, verify=verify, rules=[rules.most_messages("0")])
