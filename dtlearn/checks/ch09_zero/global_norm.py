"""ch09.global_norm: the plain case has shards only; each other one adds padding, a tie, a part that is missing."""

from __future__ import annotations

import math
from typing import Any

import torch

from dtlearn.grading import Case, Check, Edit, Finding, Given
from dtlearn.runtime.record.record import Record

from ..sent import no_silent_rank, no_stores
from . import MAY_HELP

PADDING = "padding is counted in the norm: only the first used[i] elements of shards[i] are parameters"
ONCE = "what is replicated is one part of the gradient: it counts once, not once on each rank, and not never"
TIED = "what stands twice in a list is counted, or scaled, twice: it is one part of the gradient"
NONE = "what has no gradient is left alone: an optimizer leaves out what has None, and decays what has zeros"
FINITE = "one element that is not finite makes the norm infinite or NaN on all ranks"
# Per case: `limit`, max_norm as a multiple of the norm; `times`, how long the gradients are; `padding`, what is in
# it; `bad`, what one rank has in its shards, or all have in what is replicated.
CASES: dict[str, dict[str, Any]] = {
    "shards alone": {"replicated": 0},
    "short gradients": {
        "says": "short gradients are made longer: a factor above 1 is 1",
        "limit": 3.0,
        "replicated": 0,
    },
    "tiny gradients": {"says": "divide by norm + 1e-6, as torch does", "times": 1e-5, "replicated": 0},
    "replicated parameters": {"says": ONCE},
    "padding": {"says": PADDING, "padding": 7.0},
    "padding of NaN": {"says": PADDING, "padding": math.nan},
    "a rank without shards": {"says": "a rank without shards takes part in the sum all the same", "empty": True},
    "gradients that are None": {"says": NONE, "none": True},
    "two shards with equal gradients": {"says": "two shards with equal gradients are two parts", "alike": True},
    "a shard twice in its list": {"says": TIED, "order": [0, 2, 0, 1]},
    "a replicated parameter twice": {"says": TIED, "replicated_order": [1, 0, 1]},
    "two groups": {"says": "ranks outside the group have another model", "two_groups": True, "sizes": (2, 4)},
    "an infinite shard": {"says": FINITE, "bad": ("shards", math.inf)},
    "a NaN in what is replicated": {"says": FINITE, "bad": ("replicated", math.nan)},
}
SUM, SQUARES = "dist.all_reduce(square, group=group)", "gradient.square().sum()"
FIRST = "(whole.values() if dist.get_rank(group) == 0 else ())"
MASKED = """of_list = {id(s): (s, n) for s, n in zip(shards, used, strict=True) if s.grad is not None}.values()
    counted = [*(s.grad * (torch.arange(len(s.grad)) < n) for s, n in of_list),"""
FACTOR, PARTS = "factor = min(1.0, max_norm / (norm + 1e-6))", "(*own.values(), *whole.values()):"
EDITS = (
    Edit("each rank clips by a norm of its own: add up the squares over the ranks",
         {SUM: "pass", FIRST: "whole.values()"}),
    Edit("the norms of the ranks are added up: add up their squares, then take the root",
         {SUM: f"square.sqrt_(); {SUM}; square.square_()"}),
    Edit("the largest of the ranks' norms is taken: add up the squares",
         {SUM: "dist.all_reduce(square, dist.ReduceOp.MAX, group=group)"}),
    Edit("the squares are averaged over the ranks: add them up", {SUM: f"{SUM}; square /= dist.get_world_size(group)"}),
    Edit("absolute values are added up: the norm is the root of the sum of squares",
         {SQUARES: "gradient.abs().sum()", "square.sqrt()": "square"}),
    Edit("the norm is the sum of the squares: its root is missing", {"square.sqrt()": "square"}),
    Edit("short gradients are made longer: a factor above 1 is 1", {FACTOR: "factor = max_norm / (norm + 1e-6)"}),
    Edit("the factor is max_norm / norm: divide by norm + 1e-6, as torch does",
         {FACTOR: "factor = min(1.0, max_norm / max(norm, 1e-12))"}),
    Edit("padding is multiplied by 0, which leaves a NaN: leave it out", {"counted = [*own.values(),": MASKED}),
    Edit("a rank without shards does not clip what is replicated",
         {PARTS: "(*own.values(), *(whole.values() if own else ())):"}),
    Edit("a replicated parameter that stands twice in the list counts, and is clipped, twice",
         {"id(p): p.grad for p in replicated": "k: p.grad for k, p in enumerate(replicated)"}),
    Edit("elements that are not finite are left out of the norm: they make it infinite or NaN on all ranks",
         {SQUARES: f"gradient.nan_to_num(nan=0, posinf=0, neginf=0).{SQUARES[9:]}"}),
    Edit("an infinite element is left out of the norm",
         {SQUARES: f"gradient.nan_to_num(nan=torch.nan, posinf=0, neginf=0).{SQUARES[9:]}"}),
    Edit("a NaN is left out of the norm",
         {SQUARES: f"gradient.nan_to_num(posinf=torch.inf, neginf=-torch.inf).{SQUARES[9:]}"}),
    Edit("long gradients are not clipped", {FACTOR: "factor = 1.0"}),
    Edit("what is replicated is not clipped", {PARTS: "own.values():"}),
    Edit("what is replicated is clipped on the group's first rank only", {PARTS: "counted:"}),
    Edit("the norm after clipping is returned: return the one before", {"return norm": "return min(norm, max_norm)"}),
    Edit("what is replicated is counted once on each rank: it is one part of the gradient", {FIRST: "whole.values()"}),
    Edit("what is replicated is missing in the norm", {FIRST: "()"}),
    Edit("what is replicated is counted by rank 0 only, which not every group has: use dist.get_rank(group)",
         {FIRST: "(whole.values() if dist.get_rank() == 0 else ())"}),
)  # fmt: skip


def models(case: Case) -> list[list[int]]:
    """The ranks of each model: all, or every other one, so that no group is in one piece."""
    n = case.world_size
    return [list(range(first, n, 2)) for first in range(2)] if "two_groups" in case.params else [list(range(n))]


def inputs(case: Case) -> Given:
    p, given = case.params, [dict[str, Any]() for _ in range(case.world_size)]
    times, order = p.get("times", 1.0), p.get("order", [2, 0, 1])
    for number, ranks in enumerate(models(case)):
        g = case.generator(number)
        whole: list[Any] = [torch.randn(shape, generator=g) * times for shape in ((3,), (2, 2))][
            : p.get("replicated", 2)
        ]
        for place, rank in enumerate(ranks):
            shards: list[Any] = [torch.randn(k, generator=g) * times for k in (5, 3, 4)]
            if "alike" in p:
                shards[2][:3] = shards[1]
            for shard, used in zip(shards, (4, 3, 3), strict=True):
                shard[used:] = p.get("padding", 0.0)
            where, value = p.get("bad", ("", 0.0))
            if where and (where == "replicated" or place == len(ranks) - 1):
                {"shards": shards, "replicated": whole}[where][1].view(-1)[1] = value
            if "none" in p:
                shards[0] = whole[0] = None
            alone = "empty" in p and place == len(ranks) - 1 > 0
            own = {"shards": shards, "used": [4, 3, 3], "order": [] if alone else order, "replicated": whole}
            own["replicated_order"] = p.get("replicated_order", list(range(len(whole))))
            given[rank] = {**own, "groups": models(case) if "two_groups" in p else []}
        norm = norm_of([given[rank] for rank in ranks])
        for rank in ranks:
            given[rank]["max_norm"] = p.get("limit", 0.5) * (norm if 0 < norm < math.inf else 1.0)
    return given


def on_rank(
    answer: Any, shards: Any, used: Any, order: Any, replicated: Any, replicated_order: Any, max_norm: Any, groups: Any
) -> Any:
    import math

    from dtlearn.grading.on_rank.tools import own_group, parameters

    group, parts, whole = own_group(groups), parameters(shards), parameters(replicated)
    listed = [parts[i] for i in order], [used[i] for i in order], [whole[i] for i in replicated_order]
    norm = answer(*listed, max_norm, group)
    if isinstance(norm, float) and not math.isfinite(norm):  # what is in the gradients no longer matters
        return {"norm": math.inf, "shards": [], "replicated": [], "parameters left alone": True}
    left = [None if parts[i].grad is None else parts[i].grad[: used[i]] for i in sorted({*order})]
    kept = all(bool((p == 1).all()) for p in (*parts, *whole))
    return {"norm": norm, "shards": left, "replicated": [p.grad for p in whole], "parameters left alone": kept}


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    """The whole gradient as one vector in float64, clipped as torch does."""
    results: list[dict[str, Any]] = [{} for _ in given]
    for ranks in models(case):
        norm = norm_of([given[rank] for rank in ranks])
        for rank in ranks:
            own = given[rank]
            factor = min(1.0, own["max_norm"] / (norm + 1e-6))
            shards, whole = (
                [g if g is None else g * factor for g in gs] for gs in (gradients_of(own), own["replicated"])
            )
            results[rank] = {"norm": norm, "shards": shards, "replicated": whole, "parameters left alone": True}
            if not math.isfinite(norm):
                results[rank] = {"norm": math.inf, "shards": [], "replicated": [], "parameters left alone": True}
    return results


def gradients_of(own: dict[str, Any]) -> list[Any]:
    """The gradients of a rank's shards, each once and without padding."""
    return [None if own["shards"][i] is None else own["shards"][i][: own["used"][i]] for i in sorted({*own["order"]})]


def norm_of(ranks: Given) -> float:
    """The norm over all ranks of one model."""
    parts = [part for own in ranks for part in gradients_of(own)] + ranks[0]["replicated"]
    return float(torch.cat([part.double().reshape(-1) for part in parts if part is not None]).norm())


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    """Norms that differ in their last digits let the copies of what is replicated drift apart."""
    for ranks in models(case):
        if len(norms := {got[rank]["norm"] for rank in ranks}) > 1:
            text = f"the norms of the ranks differ in their last digits ({min(norms)!r}, {max(norms)!r})"
            return Finding("DTL-MISTAKE", f"{text}: so will the copies of what is replicated", ranks[0])
    return None


def why(case: Case, given: Given, record: Record) -> str:
    return f"{MAY_HELP}a rank may have no shards, and a .grad may be None"


CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    verify=verify,
    rules=[no_silent_rank(least_calls=lambda case, given: 1)],
    why=why,
    reads=[no_stores],
    rtol=2e-5,
    atol=1e-9,
)
