"""ch07.clip_over_ranks: steps with long and short gradients, with parts that are missing, and with overflows.

What a wrong answer leads to is computed from the norms of the parts, in float64.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations
from typing import Any

import torch

from dtlearn.grading import Case, Check, Finding, Given, Mistake, compare
from dtlearn.runtime.record.record import Record
from dtlearn.runtime.words import ranks_text

from ..own_work import find_forbidden
from ..sent import no_silent_rank, no_stores
from . import TORCH_SCALERS
from ._wrong_clips import Norms, Way, changed, right_way, wrong_ways

_SCALES = (64.0, 16.0, 256.0)  # of the steps, in turn; powers of two: dividing by them rounds nothing
_KEYS = {"norm", "shards", "replicated", "moved"}
_RTOL = 1e-4  # torch's clipping adds 1e-6 to the norm
# Of each step: `limit`, max_norm as a multiple of the norm; `empty`: this rank has no shards, if there are others;
# `overflow`: (rank, value, in what), rank -1 for the last one; `alone`: nothing is replicated; `times`: how long all
# gradients are, 1 where it is left out.
_CASES: dict[str, dict[str, list[dict[str, Any]]]] = {
    "long and short gradients": {
        "steps": [
            {"limit": 0.5},
            {"limit": 3.0},
            {"limit": 0.25},
            {"limit": 0.5, "times": 1e5},
            {"limit": 2.0, "times": 1e4},
            {"limit": 0.3, "times": 0.02},
        ]
    },
    "parts that are missing": {
        "steps": [
            {"limit": 0.3, "empty": -1},
            {"limit": 0.5, "alone": True},
            {"limit": 0.6},
            {"limit": 0.4, "empty": 0},
            {"limit": 0.7, "times": 0.0},
            {"limit": 0.5, "alone": True, "empty": -1},
        ]
    },
    "overflows": {
        "steps": [
            {"limit": 0.5},
            {"limit": 0.5, "overflow": (-1, math.inf, "shards")},
            {"limit": 2.0, "overflow": (0, math.nan, "shards")},
            {"limit": 0.5, "overflow": (None, -math.inf, "replicated")},
            {"limit": 0.5, "overflow": (None, math.nan, "replicated")},
            {"limit": 0.5, "overflow": (-1, -math.inf, "shards")},
            {"limit": 2.0},
        ]
    },
}


def inputs(case: Case) -> Given:
    g, n = case.generator(), case.world_size
    given: Given = [{"steps": []} for _ in range(n)]
    for k, step in enumerate(case.params["steps"]):
        scale = _SCALES[k % len(_SCALES)]
        size = scale * step.get("times", 1.0)
        shared = [torch.randn(shape, generator=g) * size for shape in ((5,), (2, 2), (3,))]
        who, value, where = step.get("overflow", (None, 0.0, ""))
        if where == "replicated":
            shared[1][0, 1] = value
        shards = []
        for rank in range(n):
            own = [torch.randn(shape, generator=g) * size * (1 + rank) for shape in ((3, 2 + rank), (4,), (2,))]
            if where == "shards" and rank == who % n:
                own[1][2] = value
            has_none = n > 1 and rank == step.get("empty", n) % n and "empty" in step
            shards.append([] if has_none else _mixed([*own, None], g))
        replicated = [] if step.get("alone") else _mixed([*shared, None], g)
        lengths = [_length(own) for own in (*shards, replicated)]
        norm = math.hypot(*(x for x in lengths if math.isfinite(x))) or scale
        for rank in range(n):
            one = {"shards": shards[rank], "replicated": replicated, "max_norm": step["limit"] * norm / scale}
            given[rank]["steps"].append({**one, "scale": scale})
    return given


def _mixed(gradients: list[Any], g: torch.Generator) -> list[Any]:
    return [gradients[i] for i in torch.randperm(len(gradients), generator=g).tolist()]


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


def _play(case: Case, given: Given, way: Way) -> list[dict[str, Any]]:
    """By rank, what each step leads to."""
    played: list[dict[str, Any]] = [{} for _ in given]
    for k in range(len(case.params["steps"])):
        steps = [i["steps"][k] for i in given]
        scale, first, limit = steps[0]["scale"], given[0]["steps"][0]["scale"], steps[0]["max_norm"]
        lists = [*(step["shards"] for step in steps), steps[0]["replicated"]]
        lengths = [_length(own) / scale for own in lists]
        sizes = [g.abs() / scale for own in lists for g in own if g is not None]
        absolute, largest = sum(float(g.sum()) for g in sizes), max(float(g.max()) for g in sizes)
        first_limit = given[0]["steps"][0]["max_norm"]
        norms = Norms(lengths[:-1], lengths[-1], limit, scale, first, absolute, largest, first_limit)
        for rank, step in enumerate(steps):
            norm, *factors = way(norms, rank)
            left: list[Any] = [None, None]
            if math.isfinite(norms.all):
                both = step["shards"], step["replicated"]
                left = [[g if g is None else changed(g, f) for g in own] for own, f in zip(both, factors, strict=True)]
            result = {"norm": norm if math.isfinite(norms.all) else None, "shards": left[0], "replicated": left[1]}
            played[rank][_title(case, k)] = result
    return played


def _title(case: Case, k: int) -> str:
    step = case.params["steps"][k]
    who, value, where = step.get("overflow", (None, 0.0, ""))
    if where:
        rank = "every rank" if who is None else f"rank {who % case.world_size}"
        return f"step {k}, with {value} on {rank}"
    if step.get("times") == 0:
        return f"step {k}, in which all gradients are zero"
    return f"step {k}, max_norm {step['limit']:g} times the norm"


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    return _play(case, given, right_way)


def mistakes(case: Case, given: Given) -> list[Mistake]:
    return [Mistake(code, text, _play(case, given, way)) for code, text, way in wrong_ways(case.world_size)]


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
    found = compare(_VALUES, case, given, right, named)
    if found and found.code == "DTL-VALUE":
        return _left_out(titles, given, named) or found
    for title in titles if not found else ():
        if len(norms := {one[title]["norm"] for one in named}) > 1:
            text = f"in {title}, the norms of the ranks differ in their last digits ({min(norms)!r} and {max(norms)!r})"
            text += (
                ": so will the copies of what is replicated. Ranks that add up by themselves do it in the same order"
            )
            return Finding("DTL-VALUE-OWN-NORM", text, 0)
    return found


def why(case: Case, given: Given, record: Record) -> str:
    """Of a run that raised: what is special in it."""
    zero = any(step.get("times") == 0 for step in case.params["steps"])
    return "a rank may have no shards, and the norm may be 0, as here" if zero else ""


def _left_out(titles: list[str], given: Given, named: list[Any]) -> Finding | None:
    """Of one rank: which gradients the returned norm leaves out, if it is that of the others."""
    for title, step in zip(titles, given[0]["steps"], strict=True):
        norm, parts = named[0][title]["norm"], dict[str, float]()
        for name in ("shards", "replicated"):
            parts |= {f"{name}[{i}]": _length([g]) / step["scale"] for i, g in enumerate(step[name]) if g is not None}
        if len(given) > 1 or not isinstance(norm, float) or not math.isfinite(norm):
            return None
        if math.isclose(norm, math.hypot(*parts.values()), rel_tol=_RTOL):
            continue
        for count in range(1, len(parts)):
            for missing in combinations(parts, count):
                of_the_rest = math.hypot(*(length for name, length in parts.items() if name not in missing))
                if math.isclose(norm, of_the_rest, rel_tol=_RTOL):
                    text = f"in {title}, the norm is right but for {', '.join(missing)}, which it does not count"
                    return Finding("DTL-VALUE-NOT-COUNTED", f"{text}: it is the norm of all gradients", 0)
    return None


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
    rules=[no_silent_rank(least_calls=lambda case, given: len(case.params["steps"]))],
    calls=lambda case: len(case.params["steps"]),
    why=why,
    reads=[lambda source: find_forbidden(source, TORCH_SCALERS), no_stores],
)
