"""ch07.agree_on_overflow: one rank's infinity, others, values that are large and finite, and lists that lack something.

Of which rank, gradient and value the overflow is, the answer cannot know without asking: each case has another.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from dtlearn.grading import Case, Check, Edit, Given
from dtlearn.runtime.record.record import Record

from .. import MAY_HELP
from ..own_work import find_forbidden
from ..sent import no_silent_rank, no_stores
from . import TORCH_SCALERS

INF, NAN, LARGEST = math.inf, math.nan, torch.finfo(torch.float32).max
ONE = "the infinity of one rank is an overflow of all: True on every rank"
ANY = "any value of any gradient counts"
FINITE = "every value is finite, and no size is an overflow: False"
# Per case: `on`, {rank: what is in its gradients}, by (which gradient, which element); -1 is the last one. A rank
# has three gradients.
CASES: dict[str, dict[str, Any]] = {
    "finite gradients": {},
    "infinity on the last rank": {"says": ONE, "on": {-1: {(0, 0): INF}}},
    "infinity on rank 0": {"says": ONE, "on": {0: {(0, 0): INF}}, "sizes": (2, 3, 4)},
    "infinity on two ranks": {
        "says": "the infinities of two ranks are an overflow too",
        "on": {0: {(0, 0): INF}, -1: {(0, 0): INF}},
        "sizes": (2, 3, 4),
    },
    "NaN": {"says": "NaN is an overflow too", "on": {-1: {(0, 0): NAN}}},
    "minus infinity": {"says": "minus infinity is an overflow too", "on": {-1: {(0, 0): -INF}}},
    "infinity in the last gradient": {"says": ANY, "on": {-1: {(-1, 0): INF}}},
    "infinity in the last element": {"says": ANY, "on": {-1: {(0, -1): INF}}},
    "a value of 1e5": {"says": FINITE, "on": {-1: {(0, 0): 1e5}}},
    "values of 1e30": {"says": FINITE, "on": {-1: {(0, 0): 1e30, (0, 1): -1e30}}},
    "values of 2e38": {"says": FINITE, "on": {-1: {(0, 0): 2e38, (0, 1): 2e38}}},
    "the largest number of float32": {"says": FINITE, "on": {-1: {(0, 0): LARGEST, (0, 1): -LARGEST}}},
    "a gradient that is None": {"says": "a gradient may be None; those after it count", "first": [None]},
    "a gradient without dimensions": {
        "says": "a gradient of shape () has one value",
        "first": [torch.tensor(INF)],
        "on": {},
    },
    "a gradient without elements": {
        "says": "a gradient may have no elements, and is finite; those after it count",
        "first": [torch.ones(0, 2)],
    },
    "a rank without gradients": {
        "says": "a rank whose list is empty has no overflow, and asks the others all the same",
        "on": {0: {(0, 0): INF}},
        "empty": True,
        "sizes": (2, 3, 4),
    },
    "a step after one with an overflow": {
        "says": "what is noted in one step must not decide the next",
        "earlier": [[torch.tensor([INF])]],
    },
}
LOOK, ASK, YES = (
    "not gradient.isfinite().all()",
    "dist.all_reduce(overflow, op=dist.ReduceOp.MAX)",
    "overflow.item() > 0",
)
SUM, FIRST, FOUND = ASK.replace("MAX", "SUM"), "overflow = torch.zeros(())", "overflow = torch.ones(())"
EDITS = (
    Edit("each rank decides by its own gradients: the rank that overflowed skips the step, and the others take it",
         {ASK: "pass"}),
    Edit("a step is skipped only if all ranks overflowed (MIN, or a product), or most of them: one rank is enough",
         {ASK: ASK.replace("MAX", "MIN")}),
    Edit("a step is skipped only if exactly one rank overflowed: the sum over the ranks is compared with 1, and two "
         "overflows make 2", {ASK: SUM, YES: "overflow.item() == 1"}),
    Edit("rank 0 alone decides for all: an overflow on another rank is not noticed",
         {ASK: "dist.broadcast(overflow, 0)"}),
    Edit("the last rank alone decides for all: an overflow on another rank is not noticed",
         {ASK: "dist.broadcast(overflow, dist.get_world_size() - 1)"}),
    Edit("the answer is the wrong way round: True where all gradients are finite", {YES: "overflow.item() == 0"}),
    Edit("no step is ever skipped: False in all of them", {YES: "False"}),
    Edit("every step is skipped: True in all of them", {YES: "True"}),
    Edit("NaN is not noticed: isinf() is False for it, comparisons are too, and a maximum may pass over it; use "
         "isfinite()", {LOOK: "gradient.isinf().any()"}),
    Edit("infinity is not noticed, only NaN: a value that is too large for its format becomes infinite first",
         {LOOK: "gradient.isnan().any()"}),
    Edit("-inf is not noticed: a gradient overflows in both directions",
         {LOOK: "(gradient.isposinf() | gradient.isnan()).any()"}),
    Edit("-inf is not noticed, and NaN neither: gradients overflow in both directions, and isfinite() sees all of it",
         {LOOK: "gradient.isposinf().any()"}),
    Edit("infinity is not noticed in a tensor without dimensions, whose shape is (): it has one element",
         {LOOK: f"gradient.dim() and {LOOK}"}),
    Edit("a step is skipped in which every value is finite: the sum of large values is too large for float32; look at "
         "each value", {LOOK: "not gradient.sum().isfinite()"}),
    Edit("a step is skipped in which every value is finite: the norm of large values is too large for float32; look at "
         "each value", {LOOK: "not gradient.norm().isfinite()"}),
    Edit("a step is skipped in which every value is finite: a large value is taken for an overflow; it is too large "
         "for float16 only, and the gradients are float32", {LOOK: "not gradient.half().isfinite().all()"}),
    Edit("a step is skipped in which every value is finite: a large value is taken for an overflow, and what a float32 "
         "can hold ends at 3.4e38; isfinite() knows", {LOOK: "not (gradient.abs() < 3e38).all()"}),
    Edit("only the first gradient of a rank decides: the others do not count",
         {LOOK: f"gradient is next(g for g in gradients if g is not None) and {LOOK}"}),
    Edit("only the last gradient of a rank decides: the others do not count",
         {"all():\n            overflow = torch.ones(())": "all():\n            overflow = torch.ones(())\n"
          "        elif gradient is not None:\n            overflow = torch.zeros(())"}),
    Edit("only the first element of each gradient decides: look at all of them",
         {LOOK: "not gradient.view(-1)[:1].isfinite().all()"}),
    Edit("only the last element of each gradient decides: look at all of them",
         {LOOK: "not gradient.view(-1)[-1:].isfinite().all()"}),
    Edit("the gradients after one that is None are not looked at",
         {"        if gradient is not None and": "        if gradient is None:\n            break\n        if"}),
    Edit("the gradients after one without elements are not looked at",
         {"        if gradient is not None and":
          "        if gradient is not None and not gradient.numel():\n            break\n"
          "        if gradient is not None and"}),
    Edit("after the first overflow every step is skipped: what is noted in one step must not decide the next",
         {FIRST: "overflow = vars(agree_on_overflow).setdefault('overflow', torch.zeros(()))",
          FOUND: "overflow.fill_(1)"}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    p, g, n = case.params, case.generator(), case.world_size
    on = {rank % n: values for rank, values in p.get("on", {-1: {(0, 0): INF}} if "first" in p else {}).items()}
    given: Given = []
    for rank in range(n):
        gradients: list[Any] = [torch.randn(shape, generator=g) for shape in ((2, 2), (3,), (2 + rank,))]
        for (which, element), value in on.get(rank, {}).items():
            gradients[which].view(-1)[element] = value
        gradients = [*p.get("first", []), *gradients] if rank == n - 1 else gradients
        gradients = [] if "empty" in p and rank == n - 1 else gradients
        given.append({"gradients": gradients, "earlier": p.get("earlier", [])})
    return given


def on_rank(answer: Any, gradients: Any, earlier: Any = ()) -> Any:
    for step in earlier:
        answer(step)
    return answer(gradients)


def expected(case: Case, given: Given) -> list[bool]:
    values = [g.flatten() for own in given for g in own["gradients"] if g is not None]
    return [not torch.cat(values).isfinite().all()] * case.world_size


def calls(case: Case) -> int:
    return 1 + len(case.params.get("earlier", []))


def least_calls(case: Case, given: Given) -> int:
    """One call, where some rank has no overflow and so cannot know the result without the others; otherwise none."""
    return int(any(not own_overflow(own["gradients"]) for own in given))


def own_overflow(gradients: list[Any]) -> bool:
    return any(not bool(g.isfinite().all()) for g in gradients if g is not None)


def why(case: Case, given: Given, record: Record) -> str:
    """The hint for a run that raised or waits: what is special about its case."""
    special = case.says if {"first", "empty"} & {*case.params} else ""
    if not special and "on" in case.params and case.world_size > 1:
        special = "every rank asks the others, also one that has an overflow itself"
    return f"{MAY_HELP}{special}" if special else ""


EXAMPLE: list[list[Any]] = [[torch.tensor([1.0, 2.0]), torch.tensor([3.0])], [torch.tensor([-INF])]]
CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    example=[{"gradients": gradients} for gradients in EXAMPLE],
    rules=[no_silent_rank(least_calls=least_calls)],
    calls=calls,
    why=why,
    reads=[lambda source: find_forbidden(source, TORCH_SCALERS), no_stores],
)
