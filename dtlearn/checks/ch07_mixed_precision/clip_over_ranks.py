"""ch07.clip_over_ranks: steps with long and short gradients, with parts that are missing, and with overflows.

What a wrong answer leads to is computed from the norms of the parts, in float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from dtlearn.grading import Case, Check, Finding, Given, Mistake, compare
from dtlearn.runtime.record.record import Record
from dtlearn.runtime.words import ranks_text

from ..own_work import find_forbidden
from ._scalers import TORCH_SCALERS

_SCALE = 64.0  # a power of two: dividing by it rounds nothing
_KEYS = {"norm", "shards", "replicated", "moved"}
_RTOL = 1e-4  # torch's clipping adds 1e-6 to the norm
# Of each step: `limit`, max_norm as a multiple of the norm; `empty`: the last rank has no shards; `overflow`: (rank,
# value, in what), rank -1 for the last one; `alone`: nothing is replicated.
_CASES: dict[str, dict[str, list[dict[str, Any]]]] = {
    "long and short gradients": {"steps": [{"limit": 0.5}, {"limit": 3.0}, {"limit": 0.25}]},
    "parts that are missing": {"steps": [{"limit": 0.3, "empty": True}, {"limit": 0.5, "alone": True}, {"limit": 0.6}]},
    "overflows": {
        "steps": [
            {"limit": 0.5},
            {"limit": 0.5, "overflow": (-1, math.inf, "shards")},
            {"limit": 2.0, "overflow": (0, math.nan, "shards")},
            {"limit": 0.5, "overflow": (None, -math.inf, "replicated")},
            {"limit": 0.5, "overflow": (-1, -math.inf, "shards")},
            {"limit": 2.0},
        ]
    },
}


def inputs(case: Case) -> Given:
    g, n = case.generator(), case.world_size
    given: Given = [{"steps": []} for _ in range(n)]
    for step in case.params["steps"]:
        shared = [torch.randn(shape, generator=g) * _SCALE for shape in ((5,), (2, 2))]
        who, value, where = step.get("overflow", (None, 0.0, ""))
        if where == "replicated":
            shared[1][0, 1] = value
        shards = []
        for rank in range(n):
            own = [torch.randn(shape, generator=g) * _SCALE * (1 + rank) for shape in ((3, 2 + rank), (4,))]
            if where == "shards" and rank == who % n:
                own[0][0, 1] = value
            shards.append([] if step.get("empty") and n > 1 and rank == n - 1 else [own[0], None, own[1]])
        replicated = [] if step.get("alone") else [shared[0], None, shared[1]]
        lengths = [_length(own) for own in (*shards, replicated)]
        norm = math.hypot(*(x for x in lengths if math.isfinite(x)))
        for rank in range(n):
            one = {"shards": shards[rank], "replicated": replicated, "max_norm": step["limit"] * norm / _SCALE}
            given[rank]["steps"].append({**one, "scale": _SCALE})
    return given


def on_rank(answer: Any, steps: Any) -> Any:
    def parameters(gradients: Any) -> list[Any]:
        made = [torch.nn.Parameter(torch.ones(3) if g is None else torch.ones_like(g)) for g in gradients]
        for parameter, gradient in zip(made, gradients, strict=True):
            parameter.grad = None if gradient is None else gradient.clone()
        return made

    notes = []
    for step in steps:
        shards, replicated = parameters(step["shards"]), parameters(step["replicated"])
        norm = answer(shards, replicated, step["scale"], step["max_norm"])
        moved = any(not bool((p == 1).all()) for p in (*shards, *replicated))
        skipped = norm is None  # then the gradients do not matter
        left = [None if skipped else [p.grad for p in own] for own in (shards, replicated)]
        notes.append({"norm": norm, "shards": left[0], "replicated": left[1], "moved": moved})
    return notes


def _length(gradients: list[Any]) -> float:
    return math.sqrt(sum(float(g.double().square().sum()) for g in gradients if g is not None))


@dataclass(frozen=True)
class _Norms:
    """Of one step, unscaled: of each rank's shards, and of what is replicated."""

    shards: list[float]
    replicated: float
    limit: float

    @property
    def all(self) -> float:
        return math.hypot(*self.shards, self.replicated)

    @property
    def own(self) -> list[float]:
        """Of what each rank has."""
        return [math.hypot(length, self.replicated) for length in self.shards]

    @property
    def once(self) -> list[float]:
        """Of what each rank counts, if rank 0 alone counts what is replicated."""
        return [self.own[0], *self.shards[1:]]

    def clip(self, norm: float) -> float:
        return min(1.0, self.limit / norm) if norm > 0 else 1.0


# What a rank makes of a step: the norm that it returns, and what its shards' and the replicated gradients are
# multiplied by.
_Way = Callable[[_Norms, int], tuple[float, float, float]]


def _alike(norm: Callable[[_Norms, int], float]) -> _Way:
    """By another norm, and otherwise right."""
    return lambda x, r: (norm(x, r), x.clip(norm(x, r)) / _SCALE, x.clip(norm(x, r)) / _SCALE)


def _same(norm: Callable[[_Norms], float], factor: Callable[[_Norms], float]) -> _Way:
    return lambda x, r: (norm(x), factor(x), factor(x))


_right: _Way = _alike(lambda x, r: x.all)


def _play(case: Case, given: Given, way: _Way) -> list[dict[str, Any]]:
    """By rank, what each step leads to."""
    played: list[dict[str, Any]] = [{} for _ in given]
    for k in range(len(case.params["steps"])):
        steps = [i["steps"][k] for i in given]
        lengths = [_length(step["shards"]) / _SCALE for step in steps]
        norms = _Norms(lengths, _length(steps[0]["replicated"]) / _SCALE, steps[0]["max_norm"])
        for rank, step in enumerate(steps):
            norm, *factors = way(norms, rank)
            parts: list[Any] = [None, None]
            if math.isfinite(norms.all):
                lists = step["shards"], step["replicated"]
                parts = [[g if g is None else g * f for g in own] for own, f in zip(lists, factors, strict=True)]
            result = {"norm": norm if math.isfinite(norms.all) else None, "shards": parts[0], "replicated": parts[1]}
            played[rank][_title(case, k)] = result
    return played


def _title(case: Case, k: int) -> str:
    step = case.params["steps"][k]
    who, value, where = step.get("overflow", (None, 0.0, ""))
    if where:
        rank = "every rank" if who is None else f"rank {who % case.world_size}"
        return f"step {k}, with {value} on {rank}"
    return f"step {k}, max_norm {step['limit']:g} times the norm"


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    return _play(case, given, _right)


def mistakes(case: Case, given: Given) -> list[Mistake]:
    n, s = case.world_size, _SCALE
    found: list[Mistake] = []

    def add(code: str, text: str, *ways: _Way) -> None:
        found.extend(Mistake(code, text, _play(case, given, way)) for way in ways)

    if n > 1:
        text = "each rank clips by a norm of its own, of the gradients that it has: add up the squares over the ranks"
        add("DTL-VALUE-OWN-NORM", text, _alike(lambda x, r: x.own[r]), _alike(lambda x, r: x.once[r]))
        text = f"what is replicated is counted {n} times, once on each rank: it is one part of the model's gradient"
        add("DTL-VALUE-COUNTED-AGAIN", text, _alike(lambda x, r: math.hypot(*x.own)))
        text = "the norms of the ranks are added up: the squares add up, and then comes the root"
        add("DTL-VALUE-SUM-OF-NORMS", text, _alike(lambda x, r: sum(x.own)), _alike(lambda x, r: sum(x.once)))
        text = (
            "the largest of the ranks' norms is taken for the norm of all: that is right for the largest element only"
        )
        add("DTL-VALUE-LARGEST-NORM", text, _alike(lambda x, r: max(x.own)), _alike(lambda x, r: max(x.once)))
        text = f"the squares are averaged over the ranks, and not added up: the norm is too small by the root of {n}"
        roots = [_alike(lambda x, r: math.hypot(*x.own) / math.sqrt(n)), _alike(lambda x, r: x.all / math.sqrt(n))]
        add("DTL-VALUE-AVERAGED", text, *roots)
        text = "what is replicated is clipped on rank 0 only: the copies on the other ranks are another model's now"
        way: _Way = lambda x, r: (x.all, x.clip(x.all) / s, (x.clip(x.all) if r == 0 else 1.0) / s)  # noqa: E731
        unscaled: _Way = lambda x, r: (x.all, x.clip(x.all) / s, x.clip(x.all) / s if r == 0 else 1.0)  # noqa: E731
        add("DTL-VALUE-ONE-COPY", text, way, unscaled)
    add(
        "DTL-VALUE-NOT-COUNTED",
        "what is replicated is missing in the norm: it counts once, on one rank",
        _alike(lambda x, r: math.hypot(*x.shards)),
    )
    add(
        "DTL-VALUE-CLIP-SCALED",
        f"the gradients are clipped while they are still scaled, and divided by S after that: so they are S = {s:g} "
        "times too short; unscale, then clip",
        _same(lambda x: s * x.all, lambda x: x.clip(s * x.all) / s),
        _same(lambda x: x.all, lambda x: x.clip(s * x.all) / s),
    )
    add(
        "DTL-VALUE-STILL-SCALED",
        f"the gradients are still scaled at the end: each is to be divided by S = {s:g}",
        _same(lambda x: s * x.all, lambda x: x.clip(s * x.all)),
        _same(lambda x: x.all, lambda x: x.clip(x.all)),
        lambda x, r: (x.all, x.clip(x.all) / s, x.clip(x.all)),
    )
    add(
        "DTL-VALUE-UNSCALED-TWICE",
        f"gradients are divided by S = {s:g} twice",
        _same(lambda x: x.all / s, lambda x: x.clip(x.all / s) / s**2),
        _same(lambda x: x.all, lambda x: x.clip(x.all) / s**2),
    )
    add(
        "DTL-VALUE-STRETCHED",
        "gradients shorter than max_norm are made longer: multiply by max_norm / norm only if that is below 1",
        _same(lambda x: x.all, lambda x: x.limit / x.all / s),
    )
    add("DTL-VALUE-CLIP", "long gradients are not clipped", _same(lambda x: x.all, lambda x: 1 / s))
    text = "what is replicated is not clipped: it counts in the norm, and is shortened with all the rest"
    add("DTL-VALUE-CLIP", text, lambda x, r: (x.all, x.clip(x.all) / s, 1 / s))
    text = "the norm is the sum of the squares: its root is missing"
    add("DTL-VALUE-NO-ROOT", text, _alike(lambda x, r: x.all**2))
    text = "the gradients are right; returned is the norm after clipping, and asked for is the one before"
    after = _same(lambda x: min(x.all, x.limit), lambda x: x.clip(x.all) / s)
    text_scaled = f"the gradients are right; the returned norm is that of the scaled ones, S = {s:g} times too large"
    add("DTL-VALUE-RETURNED", text, after)
    add("DTL-VALUE-RETURNED", text_scaled, _same(lambda x: s * x.all, lambda x: x.clip(x.all) / s))
    return found


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    """Who skipped which step; then the values, with the steps' descriptions, which no rank is told."""
    titles = [_title(case, k) for k in range(len(case.params["steps"]))]
    right, named = expected(case, given), []
    for rank, notes in enumerate(got):
        if not isinstance(notes, list) or not all(isinstance(note, dict) and set(note) == _KEYS for note in notes):
            return Finding("DTL-RESULT", f"rank {rank} sent no readable result", rank)
        if any(note["moved"] for note in notes):
            text = f"rank {rank} changed a parameter itself: only its `.grad` is clipped, and the optimizer steps later"
            return Finding("DTL-VALUE-PARAMETERS", text, rank)
        named.append(
            {t: {k: v for k, v in note.items() if k != "moved"} for t, note in zip(titles, notes, strict=False)}
        )
    if found := _skips(titles, right, named):
        return found
    return compare(_VALUES, case, given, right, named)


def _skips(titles: list[str], right: list[Any], named: list[Any]) -> Finding | None:
    """A step that only some ranks skipped, or none, or that need not be skipped."""
    for title in titles:
        skips = [rank for rank, one in enumerate(named) if title in one and one[title]["norm"] is None]
        goes_on = [rank for rank in range(len(named)) if rank not in skips]
        if right[0][title]["norm"] is None and goes_on:
            text = f"in {title}, {ranks_text(goes_on)} returned a number: any overflow means None"
            if not skips:
                return Finding("DTL-VALUE-NOT-SKIPPED", f"{text}, on every rank", goes_on[0])
            text += f" on every rank, and only {ranks_text(skips)} returned None"
            return Finding("DTL-VALUE-OWN-OVERFLOW", text, goes_on[0])
        if right[0][title]["norm"] is not None and skips:
            text = f"in {title}, {ranks_text(skips)} returned None, and all gradients are finite there"
            if len(skips) == len(named) and titles.index(title) == 0:
                return Finding("DTL-VALUE-NONE", f"{text}: is a `return` missing?", skips[0])
            return Finding("DTL-VALUE-SKIPPED", text, skips[0])
    return None


_VALUES = Check(on_rank, inputs, expected, cases=_CASES, mistakes=mistakes, rtol=_RTOL, atol=1e-5)
CHECK = replace(
    _VALUES,
    expected=None,
    verify=verify,
    calls=lambda case: len(case.params["steps"]),
    reads=[lambda source: find_forbidden(source, TORCH_SCALERS)],
)
