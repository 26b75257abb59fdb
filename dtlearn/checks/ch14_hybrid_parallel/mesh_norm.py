"""ch14.mesh_norm: a gradient divided along tp; then stages, copies, pieces, what is alike, and what is missing."""

from __future__ import annotations

import math
from typing import Any

import torch

from dtlearn.grading import Case, Check, Edit, Finding, Given
from dtlearn.runtime.record.record import Record

from ..sent import no_silent_rank, no_stores
from . import MAY_HELP

ONCE = "what all tp ranks have whole counts once, on the first rank of each tp group"
# Per case: the mesh, innermost axis first; `limit`, max_norm as a multiple of the norm; `alike`, whether there are
# norms; `tied`, whether the last stage has a copy of the first one's embedding; `own`, whether each one has another;
# `none`, gradients that the last stage lacks; `zeros`, whether all are 0; `empty`, whether it has no parameters at all.
_CASES: dict[str, dict[str, Any]] = {
    "divided along tp": {"mesh": {"tp": 4}},
    "a short gradient": {
        "says": "a short gradient is made longer: a factor above 1 is 1",
        "mesh": {"tp": 4},
        "limit": 3.0,
    },
    "stages along pp": {
        "says": "stages have other parameters, also if their names are the same: add up along pp, too",
        "mesh": {"tp": 2, "pp": 2},
    },
    "copies along dp": {
        "says": "without ZeRO, the ranks of a dp group have the same gradients: they count once",
        "mesh": {"tp": 2, "dp": 2},
    },
    "pieces along dp": {
        "says": "with ZeRO, each rank of a dp group has other elements, and all of them count",
        "mesh": {"tp": 2, "dp": 2},
        "zero": True,
    },
    "norms on every tp rank": {"says": ONCE, "mesh": {"tp": 4}, "alike": True},
    "norms in every stage": {
        "says": f"{ONCE}; dist.get_rank(group) is a rank's number in a group",
        "mesh": {"tp": 2, "pp": 2},
        "alike": True,
    },
    "tp is not innermost": {
        "says": f"{ONCE}, which the numbers of the ranks do not show: dist.get_rank(group) does",
        "mesh": {"dp": 2, "tp": 2},
        "alike": True,
    },
    "pieces of norms": {
        "says": "with ZeRO, of a norm's pieces all dp ranks count theirs, and of the tp ranks one does",
        "mesh": {"tp": 2, "dp": 2},
        "alike": True,
        "zero": True,
    },
    "a tied embedding": {
        "says": "what another stage counts is not counted here, and is clipped all the same",
        "mesh": {"tp": 2, "pp": 2},
        "alike": True,
        "tied": True,
    },
    "an embedding of its own": {
        "says": "what another stage counts is what `elsewhere` names: a head of its own may be called embedding, too",
        "mesh": {"tp": 2, "pp": 2},
        "own": True,
    },
    "gradients that are None": {
        "says": "a gradient that is None stays None, and adds nothing",
        "mesh": {"tp": 2, "pp": 2},
        "alike": True,
        "none": ["weight 0", "norm"],
    },
    "a stage without parameters": {
        "says": "a rank without parameters takes part in the sums all the same",
        "mesh": {"tp": 2, "pp": 2},
        "empty": True,
    },
    "gradients of 0": {
        "says": "a norm of 0 divides nothing: 1e-6 is added to it, and the gradients stay 0",
        "mesh": {"tp": 2, "pp": 2},
        "zeros": True,
    },
    "all three axes": {
        "says": "with ZeRO and several stages, squares are added up along all three axes",
        "mesh": {"tp": 2, "pp": 2, "dp": 2},
        "alike": True,
        "tied": True,
        "zero": True,
    },
}
CASES = {name: {**params, "sizes": (math.prod(params["mesh"].values()),)} for name, params in _CASES.items()}
SUM, SQUARES = "dist.all_reduce(square, group=groups[axis])", "parameter.grad.square().sum()"
AXES, NOT_HERE = '("tp", "pp", "dp") if zero else ("tp", "pp")', '(alike if dist.get_rank(groups["tp"]) > 0 else set())'
FACTOR, FOR = "factor = min(1.0, max_norm / (norm + 1e-6))", "for parameter in parameters.values():"
EDITS = (
    Edit("each rank clips by a norm of its own: add up the squares over the groups", {SUM: "pass"}),
    Edit("the norms of the ranks are added up: add up their squares, then take the root",
         {SUM: f"square.sqrt_(); {SUM}; square.square_()"}),
    Edit("the norm is the sum of the squares: its root is missing", {"square.sqrt()": "square"}),
    Edit("the norm after clipping is returned: return the one before", {"return norm": "return min(norm, max_norm)"}),
    Edit("long gradients are not clipped", {FACTOR: "factor = 1.0"}),
    Edit("a short gradient is made longer: a factor above 1 is 1", {FACTOR: "factor = max_norm / (norm + 1e-6)"}),
    Edit("squares are added up along tp only: the stages along pp have other parameters", {AXES: '("tp",)'}),
    Edit("squares are added up along pp only: along tp each rank has other elements", {AXES: '("pp",)'}),
    Edit("squares are added up along dp, too, where ranks have the same gradients if ZeRO has not divided them",
         {AXES: '("tp", "pp", "dp")'}),
    Edit("squares are never added up along dp: with ZeRO each rank there has other elements", {AXES: '("tp", "pp")'}),
    Edit("with ZeRO squares are added up along tp and dp only: the stages along pp have other parameters",
         {AXES: '("tp", "dp") if zero else ("tp", "pp")'}),
    Edit("what all tp ranks have whole counts on each of them: count it on one", {NOT_HERE: "set()"}),
    Edit("what all tp ranks have whole is missing in the norm", {NOT_HERE: "alike"}),
    Edit("what all tp ranks have whole counts on rank 0 only, which not every tp group has: use dist.get_rank(group)",
         {NOT_HERE: "(alike if dist.get_rank() > 0 else set())"}),
    Edit("the first rank of a tp group is taken to be a multiple of its size: that is so if tp is the innermost axis",
         {NOT_HERE: '(alike if dist.get_rank() % dist.get_world_size(groups["tp"]) > 0 else set())'}),
    Edit("with ZeRO the pieces of norms count on the first dp rank only: each dp rank has other elements",
         {NOT_HERE: '(alike if dist.get_rank(groups["tp"]) + (zero and dist.get_rank(groups["dp"])) > 0 else set())'}),
    Edit("with ZeRO the pieces of norms count on all tp ranks: along tp they are the same",
         {NOT_HERE: '(alike if dist.get_rank(groups["tp"]) > 0 and not zero else set())'}),
    Edit("a tied embedding counts in both of its stages: it is one parameter", {"elsewhere | ": ""}),
    Edit("an embedding of a later stage is not counted, also where `elsewhere` does not name it",
         {"elsewhere | ": '(elsewhere | ({"embedding"} if dist.get_rank(groups["pp"]) else set())) | '}),
    Edit("what another stage counts is not clipped here, and the two copies are no longer the same",
         {FOR: "for parameter in (p for n, p in parameters.items() if n not in elsewhere):"}),
    Edit("what this rank does not count is not clipped here",
         {FOR: "for parameter in (p for n, p in parameters.items() if n not in not_here):"}),
    Edit("the sets that were given are changed: make new ones",
         {"not_here = elsewhere | ": "not_here = elsewhere\n    not_here |= "}),
    Edit("a gradient of None has become zeros: an optimizer leaves out what has None, and decays what has zeros",
         {"square = torch.zeros(())": "for p in parameters.values():\n        p.grad = torch.zeros_like(p) "
                                      "if p.grad is None else p.grad\n    square = torch.zeros(())"}),
)  # fmt: skip


def whole_model(case: Case) -> list[dict[str, torch.Tensor | None]]:
    """The gradients of each stage: matrices with 8 rows, which tp divides, and norms with 3 elements."""
    g, p = case.generator(), case.params
    stages: list[dict[str, Any]] = []
    for number in range(p["mesh"].get("pp", 1)):
        stage: dict[str, Any] = {f"weight {n}": torch.randn(8, 2, generator=g) for n in range(2)}
        if "own" in p or ("tied" in p and number == 0):
            stage = {"embedding": torch.randn(8, 3, generator=g), **stage}
        if "alike" in p:
            stage |= {"norm": torch.randn(3, generator=g), "bias": torch.randn(2, generator=g)}
        stages.append({name: gradient * ("zeros" not in p) for name, gradient in stage.items()})
    stages[-1] |= dict.fromkeys(p.get("none", []))
    return [*stages[:-1], {}] if "empty" in p else stages


def norm_of(case: Case) -> float:
    """The norm of the whole model's gradient, each parameter counted once."""
    parts = [g.double().flatten() for stage in whole_model(case) for g in stage.values() if g is not None]
    return float(torch.cat(parts).norm())


def inputs(case: Case) -> Given:
    p, stages, given = case.params, whole_model(case), []
    axes: dict[str, int] = p["mesh"]
    mesh = torch.arange(case.world_size).view([axes[name] for name in reversed(axes)])
    dims = {name: mesh.dim() - 1 - n for n, name in enumerate(axes)}
    groups: dict[str, list[list[int]]] = {}
    for name in ("tp", "pp", "dp"):
        rows = mesh.movedim(dims[name], -1).reshape(-1, axes[name]) if name in axes else mesh.view(-1, 1)
        groups[name] = rows.tolist()
    norm = norm_of(case)
    for rank in range(case.world_size):
        at = {name: next(ranks.index(rank) for ranks in groups[name] if rank in ranks) for name in groups}
        stage = dict(stages[at["pp"]])
        if "tied" in p and at["pp"] > 0:
            stage = {**stage, "embedding": stages[0]["embedding"]}
        own = {name: own_part(case, name, gradient, at) for name, gradient in stage.items()}
        given.append(
            {
                "gradients": own,
                "groups": groups,
                "alike": ["norm", "bias"] if "alike" in p else [],
                "elsewhere": ["embedding"] if "tied" in p and at["pp"] > 0 else [],
                "zero": "zero" in p,
                "max_norm": p.get("limit", 0.5) * norm or 1.0,
            }
        )
    return given


def own_part(case: Case, name: str, gradient: torch.Tensor | None, at: dict[str, int]) -> torch.Tensor | None:
    """What a rank has of a parameter: its rows, and, with ZeRO, its piece of them, perhaps of no element."""
    axes = case.params["mesh"]
    if gradient is not None and name not in ("norm", "bias"):
        gradient = gradient.chunk(axes.get("tp", 1))[at["tp"]]
    if gradient is not None and "zero" in case.params:
        gradient = gradient.flatten().tensor_split([(gradient.numel() + 1) * 2 // 3])[at["dp"]]
    return gradient


def on_rank(answer: Any, gradients: Any, groups: Any, alike: Any, elsewhere: Any, zero: bool, max_norm: float) -> Any:
    from dtlearn.grading.on_rank.tools import own_group, parameters

    own = dict(zip(gradients, parameters(list(gradients.values())), strict=True))
    axes = {axis: own_group(ranks) for axis, ranks in groups.items()}
    names = {"alike": set(alike), "elsewhere": set(elsewhere)}
    dicts = (dict(own), dict(axes))
    norm = answer(*dicts, **names, zero=zero, max_norm=max_norm)
    kept = all(bool((p == 1).all()) for p in own.values()) and names == {"alike": {*alike}, "elsewhere": {*elsewhere}}
    kept = kept and [[*map(id, made.values())] for made in dicts] == [[*map(id, made.values())] for made in (own, axes)]
    return {
        "norm": norm,
        "gradients": {name: parameter.grad for name, parameter in own.items()},
        "what was given stays, but for .grad": kept,
    }


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    """The norm of the whole model, which was not divided, and what torch makes of each gradient."""
    norm = norm_of(case)
    factor = min(1.0, given[0]["max_norm"] / (norm + 1e-6))
    results: list[dict[str, Any]] = []
    for own in given:
        gradients = {name: None if g is None else g * factor for name, g in own["gradients"].items()}
        results.append({"norm": norm, "gradients": gradients, "what was given stays, but for .grad": True})
    return results


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    """Norms that differ in their last digits let the copies of what is on several ranks drift apart."""
    if len(norms := {one["norm"] for one in got}) > 1:
        text = f"the norms of the ranks differ in their last digits ({min(norms)!r}, {max(norms)!r})"
        return Finding("DTL-MISTAKE", f"{text}: so will copies that are to stay the same")
    return None


def why(case: Case, given: Given, record: Record) -> str:
    return f"{MAY_HELP}{case.says or 'a rank may have no parameters, and a .grad may be None'}"


CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    edits_at_once=9,  # on a busy machine all of them take longer than a task may
    verify=verify,
    rules=[no_silent_rank(least_calls=lambda case, given: 1)],
    why=why,
    reads=[no_stores],
    rtol=2e-5,
    atol=1e-9,
)
