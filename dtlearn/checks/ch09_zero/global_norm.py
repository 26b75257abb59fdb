"""ch09.global_norm: steps with padding, ties and parts that are missing, in one group and in two.

What a wrong answer leads to is computed from the squares of the parts, in float64.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist

from dtlearn.grading import Case, Check, Finding, Given, Mistake, compare
from dtlearn.runtime.record.record import Record

from ..sent import no_silent_rank, no_stores
from . import MAY_HELP
from ._wrong_norms import WAYS, Part, Way, right_way, squares_of

_KEYS = {"norm", "shards", "replicated", "moved", "made"}
# Of each step: `limit`, max_norm as a multiple of the norm; `padding`: what is in it; `empty`: a rank without shards;
# `tied`, `tied_whole`: a shard, or a replicated parameter, that stands twice in its list; `alike`: two shards have
# equal gradients; `alone`: nothing is replicated; `all`: all ranks are one group; `times`: how long the gradients are;
# `bad`: (rank, value, in what).
_STEPS: list[dict[str, Any]] = [
    {"limit": 0.5, "all": True, "padding": 0.0},
    {"limit": 3.0, "padding": 0.0},
    {"limit": 0.4, "padding": 7.0},
    {"limit": 0.6, "all": True, "padding": math.nan},
    {"limit": 0.3, "tied": True},
    {"limit": 0.35, "tied_whole": True, "all": True},
    {"limit": 0.98, "empty": 0},
    {"limit": 0.5, "empty": -1, "alone": True, "all": True},
    {"limit": 0.5, "times": 1e-5, "all": True},
    {"limit": 0.25, "times": 1e5},
    {"limit": 0.5, "times": 0.0, "all": True},
    {"limit": 0.5, "bad": (-1, math.inf, "shards")},
    {"limit": 0.5, "bad": (0, math.nan, "shards"), "all": True},
    {"limit": 2.0, "bad": (0, -math.inf, "replicated")},
    {"limit": 0.55, "alike": True, "all": True},
    {"limit": 0.45, "padding": math.inf, "tied": True, "all": True},
]


def inputs(case: Case) -> Given:
    g, n = case.generator(), case.world_size
    given: Given = [{"groups": _groups(n), "steps": []} for _ in range(n)]
    for step in _STEPS:
        of_models = [range(n)] if step.get("all") else _groups(n)
        for model, ranks in enumerate(of_models):
            _add(given, step, list(ranks), g, step.get("times", 1.0) * (1 + 2 * model))
    return given


def _groups(n: int) -> list[list[int]]:
    return [list(range(first, n, 2)) for first in range(min(n, 2))]  # not in one piece, and one without rank 0


def _add(given: Given, step: dict[str, Any], ranks: list[int], g: torch.Generator, size: float) -> None:
    """A step of the ranks that have one model."""
    whole = [None if step.get("alone") else torch.randn(shape, generator=g) * size for shape in ((3,), (2, 2))]

    def place_of(end: int) -> int:
        return int(torch.randint(end, (), generator=g))

    who, value, where = step.get("bad", (0, 0.0, ""))
    if where == "replicated" and whole[1] is not None:
        whole[1][1, 0] = value
    for place, rank in enumerate(ranks):
        used = [4, 0 if place == len(ranks) - 1 else 3, 3]
        shards: list[Any] = [torch.randn(k, generator=g) * size * (1 + place) for k in (5, 3, 4)]
        if where == "shards" and place == who % len(ranks):
            shards[0][2] = value
        if "alike" in step:
            shards[2][:3] = shards[1]
        for shard, k in zip(shards, used, strict=True):
            shard[k:] = step.get("padding", 7.0) * (size or 1.0)
        order = [*torch.randperm(3, generator=g).tolist(), 3]
        if len(ranks) > 1 and "empty" in step and place == step["empty"] % len(ranks):
            order = []
        if order and step.get("tied"):
            order.insert(place_of(len(order) + 1), (0, 2)[place_of(2)])
        one = {"shards": [*shards, None], "used": [*used, 1], "order": order, "whole": [*whole, None]}
        whole_order = [1, 2, 0]
        if step.get("tied_whole"):
            whole_order.insert(place_of(4), place_of(2))
        given[rank]["steps"].append({**one, "whole_order": whole_order, "all": bool(step.get("all"))})
    squares = [squares_of(given[rank]["steps"][-1]) for rank in ranks]
    norm = math.sqrt(sum(s.own for s in squares) + squares[0].whole)
    for rank in ranks:
        given[rank]["steps"][-1]["max_norm"] = step["limit"] * (norm if 0 < norm < math.inf else 1.0)


def on_rank(answer: Any, groups: Any, steps: Any) -> Any:
    own = None
    for ranks in groups:
        made = dist.new_group(ranks) if len(groups) > 1 else None
        own = made if dist.get_rank() in ranks else own

    def parameters(gradients: Any, fill: int) -> list[Any]:
        made = [torch.nn.Parameter(torch.ones(fill) if g is None else torch.ones_like(g)) for g in gradients]
        for parameter, gradient in zip(made, gradients, strict=True):
            parameter.grad = None if gradient is None else gradient.clone()
        return made

    notes = []
    for step in steps:
        shards, whole = parameters(step["shards"], 1), parameters(step["whole"], 3)
        norm = answer(
            [shards[i] for i in step["order"]],
            [step["used"][i] for i in step["order"]],
            [whole[i] for i in step["whole_order"]],
            step["max_norm"],
            None if step["all"] else own,
        )
        moved = any(not bool((p == 1).all()) for p in (*shards, *whole))
        made = [p.grad for p in (shards[3], whole[2]) if p.grad is not None]
        listed = sorted({*step["order"]} - {3})
        left = {str(i): None if shards[i].grad is None else shards[i].grad[: step["used"][i]] for i in listed}
        kept = [None if p.grad is None else p.grad for p in whole]
        notes.append({"norm": norm, "shards": left, "replicated": kept, "moved": moved, "made": len(made)})
    return notes


def _play(case: Case, given: Given, way: Way) -> list[dict[str, Any]]:
    """By rank, what each step leads to."""
    n, played = case.world_size, [dict[str, Any]() for _ in given]
    for k in range(len(_STEPS)):
        steps = [i["steps"][k] for i in given]
        squares = [squares_of(step) for step in steps]
        for rank, step in enumerate(steps):
            ranks = list(range(n)) if step["all"] else next(r for r in _groups(n) if rank in r)
            part = Part([squares[r] for r in ranks], squares, ranks.index(rank), float(step["max_norm"]), ranks[0])
            norm, own, whole, again, whole_again = way(part) if math.isfinite(part.norm) else right_way(part)
            shards: Any = None
            replicated: Any = None
            if math.isfinite(part.norm):
                order, twice = step["order"], step["whole_order"]
                shards = {
                    str(i): step["shards"][i][: step["used"][i]] * own * (again if order.count(i) > 1 else 1.0)
                    for i in sorted({*order} - {3})
                }
                replicated = [
                    g if g is None else g * whole * (whole_again if twice.count(i) > 1 else 1.0)
                    for i, g in enumerate(step["whole"])
                ]
            played[rank][_title(case, k)] = {"norm": norm, "shards": shards, "replicated": replicated}
    return played


def _title(case: Case, k: int) -> str:
    step, text = _STEPS[k], f"step {k}, max_norm {_STEPS[k]['limit']:g} times the norm"
    names = {
        "alike": "two shards with equal gradients",
        "empty": "a rank without shards",
        "tied": "a tied shard",
        "tied_whole": "a tied replicated parameter",
    }
    text += "".join(f", {name}" for key, name in names.items() if key in step)
    if "bad" in step:
        text = f"step {k}, with {step['bad'][1]} in {step['bad'][2]} of one rank"
    padding = step.get("padding", 7.0)
    text += f", padding of {padding:g}" if padding else ""
    text += f", gradients times {step['times']:g}" if "times" in step else ""
    return text + (", two groups" if not step.get("all") and case.world_size > 1 else "")


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    return _play(case, given, right_way)


def mistakes(case: Case, given: Given) -> list[Mistake]:
    return [Mistake(f"DTL-VALUE-{code}", text, _play(case, given, way)) for code, text, way in WAYS]


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    """Norms that are not finite; then the values, with the steps' descriptions."""
    right, named = expected(case, given), []
    titles = list(right[0])
    for rank, notes in enumerate(got):
        if not isinstance(notes, list) or not all(isinstance(note, dict) and set(note) == _KEYS for note in notes):
            return Finding("DTL-RESULT", f"rank {rank} sent no readable result", rank)
        if any(note["moved"] for note in notes):
            text = f"rank {rank} changed a parameter itself: only its `.grad` is scaled, and the optimizer steps later"
            return Finding("DTL-VALUE-PARAMETERS", text, rank)
        if any(note["made"] for note in notes):
            text = f"rank {rank} gave a parameter a .grad that had None: the optimizer leaves out what has none, and "
            return Finding("DTL-VALUE-GRADIENT-MADE", f"{text}decays, or moves by its momentum, what has zeros", rank)
        one = {}
        for title, note in zip(titles, notes, strict=True):
            want = right[rank][title]["norm"]
            norm = note["norm"]
            if not isinstance(norm, float):
                what = (
                    "a tensor: .item() makes a float of it" if isinstance(norm, torch.Tensor) else type(norm).__name__
                )
                return Finding("DTL-VALUE-TYPE", f"{title}: rank {rank} returned {what}; it should be a float", rank)
            if math.isfinite(want) and not math.isfinite(norm):
                text = f"{title}: rank {rank} returned {norm}, and all parameters have finite gradients"
                if not math.isfinite(_STEPS[titles.index(title)].get("padding", 7.0)):
                    return Finding("DTL-VALUE-NORM-PADDING", f"{text}: padding is counted in the norm", rank)
                return Finding("DTL-VALUE-NAN", f"{text}: is something divided by 0?", rank)
            keys = ("norm", "shards", "replicated")
            skip = not math.isfinite(want)
            one[title] = right[rank][title] if skip else {key: note[key] for key in keys}
        named.append(one)
    if found := compare(_VALUES, case, given, right, named):
        return found
    for rank, notes in enumerate(got):
        for title, note in zip(titles, notes, strict=True):
            want = right[rank][title]["norm"]
            if not math.isfinite(want) and math.isfinite(note["norm"]):
                text = (
                    f"{title}: rank {rank} returned {note['norm']:g}, and the norm is {want} on all ranks of the group"
                )
                return Finding("DTL-VALUE-NOT-FINITE", text, rank)
    return _unequal(titles, given, named)


def _unequal(titles: list[str], given: Given, named: list[Any]) -> Finding | None:
    for k, title in enumerate(titles):
        every = range(len(named))
        for ranks in [list(every)] if given[0]["steps"][k]["all"] else given[0]["groups"]:
            norms = {named[rank][title]["norm"] for rank in ranks}
            if len(norms) > 1 and all(math.isfinite(norm) for norm in norms):
                text = f"{title}: the norms of the ranks differ in their last digits ({min(norms)!r}, {max(norms)!r})"
                return Finding("DTL-VALUE-OWN-NORM", f"{text}: so will the copies of what is replicated", ranks[0])
    return None


def why(case: Case, given: Given, record: Record) -> str:
    """Of a run that raised: what is special in it."""
    return f"{MAY_HELP}a rank may have no shards, a .grad may be None, and the norm may be 0"


_VALUES = Check(on_rank, inputs, expected, mistakes=mistakes, rtol=2e-5, atol=1e-9)
CHECK = replace(
    _VALUES,
    expected=None,
    verify=verify,
    rules=[no_silent_rank(least_calls=lambda case, given: len(_STEPS))],
    calls=lambda case: len(_STEPS),
    why=why,
    reads=[no_stores],
)
