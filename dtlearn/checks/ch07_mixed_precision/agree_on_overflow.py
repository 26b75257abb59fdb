"""ch07.agree_on_overflow: several steps in a run, in which nobody, one rank or several have a value that is not finite.

A rank that asks nobody cannot know what the others have: it would have to guess all steps, whose order is random.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from dtlearn.grading import Case, Check, Finding, Given, Mistake, compare
from dtlearn.runtime.record.record import Record

from ..own_work import find_forbidden
from ..sent import no_silent_rank, no_stores
from . import TORCH_SCALERS

_INF, _NAN, _LARGE = math.inf, math.nan, 2e38  # the sum of two of these is infinite in float32
_LARGEST = torch.finfo(torch.float32).max


@dataclass(frozen=True)
class _Step:
    """Who has `value`, in which gradient; `empty`: these ranks have no gradient at all."""

    who: Callable[[int, int], bool] = lambda rank, n: False
    value: float = _INF
    place: int = 0  # 3 and more: of the further ones that `shapes` makes
    empty: Callable[[int, int], bool] = lambda rank, n: False
    fill: float = 1.0  # magnitude of all other values
    peak: bool = False  # two of them are the largest number of float32 and the smallest


def _first(rank: int, n: int) -> bool:
    return rank == 0


def _last(rank: int, n: int) -> bool:
    return rank == n - 1


def _middle(rank: int, n: int) -> bool:
    return rank == n // 2


def _first_two(rank: int, n: int) -> bool:
    return rank < 2


def _all(rank: int, n: int) -> bool:
    return True


_CASES: dict[str, dict[str, list[Any]]] = {
    "overflows here and there": {
        "steps": [
            _Step(),
            _Step(_last),
            _Step(_first, -_INF, 1),
            _Step(_first, _INF, 2),
            _Step(),
            _Step(_middle, _NAN, 2),
            _Step(_first_two, _INF, 1),
            _Step(_all, _INF),
            _Step(_last, _NAN, 1),
            _Step(),
        ]
    },
    "large, finite gradients": {
        "steps": [
            # too large for a float16, for a norm in float32, for a sum, for a bound below the largest number
            _Step(fill=1e5),
            _Step(fill=1e30),
            _Step(fill=_LARGE),
            _Step(peak=True),
            _Step(),
            _Step(_last, -_INF, 2, fill=_LARGE),
            _Step(_first, _NAN, 1, fill=_LARGE),
            _Step(_last, _NAN, fill=_LARGE),
            _Step(_first, _INF, fill=_LARGE),
        ]
    },
    "ranks without gradients, and empty ones": {
        "shapes": [(0, 3), (), (0,), (2, 1, 2, 2)],  # of further gradients
        "steps": [
            _Step(_first, _INF, 2, empty=_last),
            _Step(_first, _NAN, 1, empty=_last),
            _Step(empty=_all),
            _Step(_last, -_INF, 1, empty=_first),
            _Step(_last, _NAN, empty=_first),
            _Step(_last, _INF, 4),
            _Step(_first, _NAN, 6),
            _Step(),
        ],
    },
}


def _steps(case: Case) -> list[_Step]:
    """The first one, and the others in another order in every grading."""
    first, *rest = case.params["steps"]
    return [first, *(rest[k] for k in torch.randperm(len(rest), generator=case.generator(1)).tolist())]


def inputs(case: Case) -> Given:
    g, n = case.generator(), case.world_size
    given: Given = []
    for rank in range(n):
        steps: list[list[torch.Tensor | None]] = []
        for step in _steps(case):
            tensors = [torch.rand(shape, generator=g) * 0.3 + 0.7 for shape in ((2 + rank, 3), (4,), (rank + 3,))]
            tensors = [t * step.fill * sign for t, sign in zip(tensors, (1, -1, 1), strict=True)]
            if step.peak:
                tensors[0][0, 1], tensors[1][2] = _LARGEST, -_LARGEST
            shapes = case.params.get("shapes", [])
            others = [torch.ones(shape) for shape in shapes]
            if step.who(rank, n):
                values = [*tensors, *others][step.place].view(-1)
                values[int(torch.randint(len(values), (), generator=g))] = step.value
            more = [torch.ones(shape) for shape in shapes]
            gradients: list[torch.Tensor | None] = [*others, tensors[0], None, *tensors[1:], *more]
            if rank % 2:  # not all lists are of one length
                gradients.append(torch.ones(3))
            if step.empty(rank, n) and not step.who(rank, n):
                gradients = [None] if rank % 2 else []
            steps.append(gradients)
        given.append({"gradients": steps})
    return given


def on_rank(answer: Any, gradients: Any) -> Any:
    return [answer(step) for step in gradients]


def _is_finite(gradients: list[Any]) -> bool:
    return all(bool(t.isfinite().all()) for t in gradients)


def _decisions(
    case: Case, given: Given, finite: Callable[[list[Any]], bool], agree: Callable[[list[bool]], list[bool]]
) -> list[dict[str, bool]]:
    """By rank, what is returned in each step if ranks look with `finite` and make the decision with `agree`."""
    found: list[dict[str, bool]] = [{} for _ in given]
    for k in range(len(case.params["steps"])):
        own = [not finite([t for t in i["gradients"][k] if t is not None]) for i in given]
        for rank, decision in enumerate(agree(own)):
            found[rank][_title(case, given, k)] = decision
    return found


def _title(case: Case, given: Given, k: int) -> str:
    """What is special in a step, in words."""
    step = _steps(case)[k]
    n = case.world_size
    ranks = [str(rank) for rank in range(n) if step.who(rank, n)]
    text = "all gradients finite"
    if ranks:
        value = "NaN" if math.isnan(step.value) else f"{step.value}"
        text = f"{value} on rank{'s' * (len(ranks) > 1)} {', '.join(ranks)}"
    elif step.fill > 1 or step.peak:
        text = f"values up to {_LARGEST if step.peak else step.fill:.3g}, all finite"
    return f"step {k}: {text}"


def _any(own: list[bool]) -> list[bool]:
    return [any(own)] * len(own)


def expected(case: Case, given: Given) -> list[dict[str, bool]]:
    return _decisions(case, given, _is_finite, _any)


def mistakes(case: Case, given: Given) -> list[Mistake]:
    n, found = case.world_size, []

    def add(code: str, text: str, finite: Any = _is_finite, agree: Any = _any) -> None:
        found.append(Mistake(code, text, _decisions(case, given, finite, agree)))

    add(
        "DTL-VALUE-OWN-OVERFLOW",
        "each rank decides by its own gradients: the rank that overflowed skips the step, and the others take it",
        agree=list,
    )
    add(
        "DTL-VALUE-MISSED-NAN",
        "NaN is not noticed: isinf() is False for it, comparisons are too, and a maximum may pass over it; use "
        "isfinite()",
        lambda tensors: not any(bool(t.isinf().any()) for t in tensors),
    )
    add(
        "DTL-VALUE-MISSED-INF",
        "infinity is not noticed, only NaN: a value that is too large for its format becomes infinite first",
        lambda tensors: not any(bool(t.isnan().any()) for t in tensors),
    )
    for sees_nan in (True, False):
        add(
            "DTL-VALUE-MISSED-MINUS-INF",
            "-inf is not noticed: a gradient overflows in both directions",
            lambda tensors, nan=sees_nan: not any(bool(((t == _INF) | (nan & t.isnan())).any()) for t in tensors),
        )
    add(
        "DTL-VALUE-MISSED-INF",
        "infinity is not noticed in a tensor without dimensions, whose shape is (): it has one element",
        lambda tensors: all(bool(t.isfinite().all()) for t in tensors if t.dim()),
    )
    sums = (
        lambda tensors: all(math.isfinite(float(t.sum())) for t in tensors),
        lambda tensors: bool(torch.tensor([float(t.sum()) for t in tensors]).sum().isfinite()),
        lambda tensors: all(bool(t.norm().isfinite()) for t in tensors),
        lambda tensors: bool(torch.tensor([float(t.norm()) for t in tensors]).norm().isfinite()),
    )
    for by_sum in sums:
        add(
            "DTL-VALUE-FALSE-ALARM",
            "a step is skipped in which every value is finite: a sum or a norm of large values is too large for "
            "float32; look at each value",
            by_sum,
        )
    for bound, why in (
        (65504.0, "it is too large for float16 only, and the gradients are float32"),
        *((bound, "what a float32 can hold ends at 3.4e38; isfinite() knows") for bound in (1e38, 2.5e38, _LARGEST)),
    ):
        add(
            "DTL-VALUE-FALSE-ALARM",
            f"a step is skipped in which every value is finite: a large value is taken for an overflow, and {why}",
            lambda tensors, bound=bound: all(
                bool((t.abs() < bound).all() if bound > 65504 else t.half().isfinite().all()) for t in tensors
            ),
        )
    for place, which in ((0, "first"), (-1, "last")):
        add(
            "DTL-VALUE-ONE-GRADIENT",
            f"only the {which} gradient of a rank decides: the others do not count",
            lambda tensors, at=place: not tensors or bool(tensors[at].isfinite().all()),
        )
    ways: dict[str, tuple[str, Callable[[list[bool]], list[bool]]]] = {
        "DTL-VALUE-ALL-RANKS": (
            "a step is skipped only if all ranks overflowed (MIN, or a product): one rank is enough",
            lambda own: [all(own)] * n,
        ),
        "DTL-VALUE-COUNTED": (
            "a step is skipped only if exactly one rank overflowed: the sum over the ranks is compared with 1, and "
            "two overflows make 2",
            lambda own: [sum(own) == 1] * n,
        ),
        "DTL-VALUE-MAJORITY": (
            "a step is skipped only if more than half of the ranks overflowed: one rank is enough",
            lambda own: [2 * sum(own) > n] * n,
        ),
        "DTL-VALUE-INVERTED": (
            "the answer is the wrong way round: True where all gradients are finite",
            lambda own: [not any(own)] * n,
        ),
        "DTL-VALUE-NEVER": ("no step is ever skipped: False in all of them", lambda own: [False] * n),
        "DTL-VALUE-ALWAYS": ("every step is skipped: True in all of them", lambda own: [True] * n),
    }
    for code, (text, agree) in ways.items():
        add(code, text, agree=agree)
    for source in range(n):
        text = f"rank {source} alone decides for all: an overflow on another rank is not noticed"
        add("DTL-VALUE-ONE-DECIDES", text, agree=lambda own, r=source: [own[r]] * n)
    for source in range(n if n > 2 else 0):
        text = f"an overflow on rank {source} is not noticed, and on other ranks it is: all ranks have to be asked"
        add("DTL-VALUE-RANK-IGNORED", text, agree=lambda own, r=source: [any(own[:r] + own[r + 1 :])] * n)
    so_far: list[bool] = []
    text = "after the first overflow every step is skipped: what is noted in one step must not decide the next"
    add("DTL-VALUE-ALWAYS", text, agree=lambda own: so_far.append(any(own)) or [any(so_far)] * n)  # type: ignore[func-returns-value]
    for place, which in ((0, "first"), (-1, "last")):  # after the others: the places are random, and few
        add(
            "DTL-VALUE-ONE-ELEMENT",
            f"only the {which} element of each gradient decides: look at all of them",
            lambda tensors, at=place: all(bool(t.view(-1)[at].isfinite()) for t in tensors if t.numel()),
        )
    return found


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    """Compares, with the steps' descriptions, which no rank is told."""
    titles = [_title(case, given, k) for k in range(len(case.params["steps"]))]
    named = [dict(zip(titles, one, strict=True)) if _is_readable(one, len(titles)) else one for one in got]
    return compare(_VALUES, case, given, expected(case, given), named)


def why(case: Case, given: Given, record: Record) -> str:
    """Of a run that raised: what is special in it."""
    return "a gradient may have no elements, and a list may be empty, as here" if "shapes" in case.params else ""


def _is_readable(one: Any, count: int) -> bool:
    return isinstance(one, list) and len(one) == count


_VALUES = Check(on_rank, inputs, expected, cases=_CASES, mistakes=mistakes)
CHECK = replace(
    _VALUES,
    expected=None,
    verify=verify,
    rules=[no_silent_rank(least_calls=lambda case, given: len(case.params["steps"]))],
    calls=lambda case: len(case.params["steps"]),
    why=why,
    reads=[lambda source: find_forbidden(source, TORCH_SCALERS), no_stores],
)
