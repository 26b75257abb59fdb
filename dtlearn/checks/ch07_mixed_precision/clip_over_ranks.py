"""ch07.clip_over_ranks: the plain case has a shard on each rank; each other one adds shards, what every rank has,
what is missing, or an overflow."""

from __future__ import annotations

import math
from typing import Any

import torch

from dtlearn.grading import Case, Check, Edit, Finding, Given
from dtlearn.runtime.record.record import Record

from .. import MAY_HELP
from ..own_work import find_forbidden
from ..sent import no_silent_rank, no_stores
from . import TORCH_SCALERS

ONCE = "what is replicated is one part of the model's gradient: it counts once, not once on each rank, and not never"
SKIP = "an overflow on any rank means None, on every rank"
# Per case: `limit`, max_norm as a multiple of the norm; `shards`, how many a rank has; `replicated`, how many there
# are; `empty`, the rank whose list is empty; `bad`, what the last rank has in its shards, or all in what is replicated;
# `earlier`, the scales of steps that are made before, with these gradients.
CASES: dict[str, dict[str, Any]] = {
    "a shard on each rank": {"shards": 1, "replicated": 0},
    "short gradients": {
        "says": "short gradients are made longer: multiply by max_norm / norm only if that is below 1",
        "limit": 3.0,
        "shards": 1,
        "replicated": 0,
    },
    "several shards": {"says": "the norm is that of all gradients in the list", "replicated": 0},
    "replicated parameters": {"says": ONCE},
    "a rank without shards": {
        "says": "a rank without gradients takes part in the sum all the same",
        "replicated": 0,
        "empty": -1,
        "sizes": (2, 3, 4),
    },
    "rank 0 without shards": {
        "says": "what is replicated counts also where rank 0 has no shards",
        "empty": 0,
        "sizes": (2, 3, 4),
    },
    "gradients that are None": {"says": "what has no gradient is left as it is, and counts nothing", "none": True},
    "gradients of zeros": {
        "says": "all gradients may be 0: is something divided by their norm?",
        "times": 0.0,
        "shards": 1,
        "replicated": 0,
    },
    "an infinite gradient on one rank": {"says": SKIP, "bad": ("shards", math.inf)},
    "a gradient of NaN on one rank": {"says": SKIP, "bad": ("shards", math.nan)},
    "an infinite gradient of what is replicated": {"says": SKIP, "bad": ("replicated", -math.inf)},
    "another scale than in the step before": {
        "says": "the gradients are divided by the scale of this step: S changes from step to step",
        "earlier": [64.0],
        "scale": 16.0,
    },
}
SUM, SQUARE = "dist.all_reduce(square)", "square += parameter.grad.square().sum()"
ROOT, FINITE, LONG = "square.sqrt().item()", "not math.isfinite(norm)", "if norm > max_norm:"
FIRST = "(*shards, *replicated) if dist.get_rank() == 0 else shards"
EACH = "        for gradient in gradients:\n            "
UNSCALE, CLIP = "gradient /= scale", "gradient *= max_norm / norm"
EDITS = (
    Edit("each rank clips by a norm of its own, of the gradients that it has: add up the squares over the ranks",
         {SUM: "finite = torch.tensor(float(square)); dist.all_reduce(finite)", FIRST: "(*shards, *replicated)",
          FINITE: "not finite.isfinite()"}),
    Edit("the norms of the ranks are added up: the squares add up, and then comes the root",
         {SUM: f"square.sqrt_(); {SUM}; square.square_()"}),
    Edit("the largest of the ranks' norms is taken: add up the squares",
         {SUM: "dist.all_reduce(square, dist.ReduceOp.MAX)"}),
    Edit("the squares are averaged over the ranks: add them up", {SUM: f"{SUM}; square /= dist.get_world_size()"}),
    Edit("absolute values are added up: the norm is the root of the sum of squares",
         {SQUARE: "square += parameter.grad.abs().sum()", ROOT: "square.item()"}),
    Edit("the norm is the sum of the squares: its root is missing", {ROOT: "square.item()"}),
    Edit("a norm of another kind: the largest absolute value, and asked for is the root of the sum of the squares",
         {SQUARE: "square = torch.maximum(square, parameter.grad.abs().max())", ROOT: "square.item()",
          SUM: "dist.all_reduce(square, dist.ReduceOp.MAX)"}),
    Edit("the gradients are still scaled, and so is the norm: divide the gradients by S first", {UNSCALE: "pass"}),
    Edit("the norm is unscaled and the gradients are not: divide them by S, too",
         {UNSCALE: "pass", ROOT: f"{ROOT} / scale"}),
    Edit("the gradients are clipped while they are still scaled, and divided by S after that: so they are S times too "
         "short; unscale, then clip",
         {UNSCALE: "pass", FINITE: f"not [g.mul_(min(1.0, max_norm / (norm or 1.0)) / scale) for g in gradients] or "
          f"{FINITE}", LONG: "norm /= scale\n    if False:"}),
    Edit("what is replicated is still scaled, and the rest is not: each gradient is to be divided by S",
         {"for gradient in gradients:\n        gradient /= scale":
          "for gradient in [p.grad for p in shards if p.grad is not None]:\n        gradient /= scale"}),
    Edit("what is replicated is still scaled, and the rest is not: each gradient is to be divided by S",
         {"gradients = [p.grad for p in (*shards, *replicated)": "gradients = [p.grad for p in shards"}),
    Edit("gradients shorter than max_norm are made longer: multiply by max_norm / norm only if that is below 1",
         {LONG: "if norm > 0:"}),
    Edit("long gradients are not clipped", {LONG: "if False:"}),
    Edit("the gradients are multiplied by norm / max_norm: it is max_norm / norm that makes them shorter",
         {CLIP: "gradient *= norm / max_norm"}),
    Edit("each value is clipped to max_norm by itself, which changes the gradient's direction: clip its norm",
         {CLIP: "gradient.clamp_(-max_norm, max_norm)"}),
    Edit("each parameter is clipped by itself: max_norm is for the gradient of all together",
         {CLIP: "gradient *= (max_norm / gradient.norm()).clamp(max=1)"}),
    Edit("the norm after clipping is returned: return the one before", {"return norm": "return min(norm, max_norm)"}),
    Edit("the returned norm is that of the scaled gradients: return the norm of the unscaled ones",
         {"return norm": "return norm * scale"}),
    Edit("what is replicated is not clipped",
         {f"{EACH}{CLIP}": f"{EACH.replace('gradients', '[p.grad for p in shards if p.grad is not None]')}{CLIP}"}),
    Edit("what is replicated is clipped on rank 0 only: the copies on the other ranks are another model's now",
         {f"{EACH}{CLIP}": f"{EACH.replace('gradients', '[p.grad for p in counted if p.grad is not None]')}{CLIP}"}),
    Edit("what is replicated is counted once on each rank: it is one part of the model's gradient",
         {FIRST: "(*shards, *replicated)"}),
    Edit("what is replicated is missing in the norm", {FIRST: "shards"}),
    Edit("what is replicated does not count in a step in which rank 0 has no shards: it always counts",
         {FIRST: FIRST.replace("== 0", "== 0 and shards")}),
    Edit("only the first shard of a rank is counted: the norm is that of all gradients",
         {FIRST: FIRST.replace("*shards, *", "*shards[:1], *").replace("else shards", "else shards[:1]")}),
    Edit("a parameter without a gradient ends the loop: those after it count, too",
         {f"        if parameter.grad is not None:\n            {SQUARE}":
          f"        if parameter.grad is None:\n            break\n        {SQUARE}"}),
    Edit("an overflow is not noticed: the norm is infinite or NaN, and None is expected, on every rank",
         {"return None": "return norm"}),
    Edit("NaN is not noticed, only infinity: math.isfinite() is False for both", {FINITE: "math.isinf(norm)"}),
    Edit("infinity is not noticed, only NaN: math.isfinite() is False for both", {FINITE: "math.isnan(norm)"}),
    Edit("each rank looks for an overflow in its own gradients, and others return a number: None on every rank",
         {FINITE: "not all(g.isfinite().all() for g in gradients)"}),
    Edit("an overflow is looked for in the shards only: what is replicated can overflow, too",
         {SUM: f"finite = torch.tensor(float(all(p.grad is None or p.grad.isfinite().all() for p in shards)))\n"
               f"    dist.all_reduce(finite, dist.ReduceOp.MIN); {SUM}", FINITE: "not finite"}),
    Edit("the gradients are divided by the scale of the first step in all steps: S is an argument, and it changes",
         {UNSCALE: "gradient /= vars(clip_over_ranks).setdefault('scale', scale)"}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    p, g, n, scale = case.params, case.generator(), case.world_size, case.params.get("scale", 64.0)
    size, given = scale * p.get("times", 1.0), list[dict[str, Any]]()
    replicated: list[Any] = [torch.randn(shape, generator=g) * size for shape in ((3,), (2, 2))][: p.get("replicated")]
    where, value = p.get("bad", ("", 0.0))
    for rank in range(n):
        shards: list[Any] = [torch.randn(shape, generator=g) * size for shape in ((2, 2), (4,), (3,))][
            : p.get("shards")
        ]
        if where and (where == "replicated" or rank == n - 1):
            {"shards": shards, "replicated": replicated}[where][1].view(-1)[1] = value
        if "none" in p:
            shards[0] = replicated[0] = None
        shards = [] if rank == p.get("empty", n) % n and "empty" in p else shards
        given.append({"shards": shards, "replicated": replicated, "scale": scale, "earlier": p.get("earlier", [])})
    norm = norm_of(given)
    limit = p.get("limit", 0.5) * (norm if 0 < norm < math.inf else 1.0)
    return [{**own, "max_norm": limit} for own in given]


def on_rank(answer: Any, shards: Any, replicated: Any, scale: Any, max_norm: Any, earlier: Any = ()) -> Any:
    import math

    from dtlearn.grading.on_rank.tools import parameters

    for one in earlier:
        answer(parameters(shards), parameters(replicated), one, max_norm)
    parts, whole = parameters(shards), parameters(replicated)
    norm = answer(parts, whole, scale, max_norm)
    if norm is None or (isinstance(norm, float) and not math.isfinite(norm)):  # the gradients no longer matter
        nothing = {"shards": None, "replicated": None, "parameters left alone": True}
        return {"norm": None if norm is None else "infinite or NaN", **nothing}
    kept = all(bool((p == 1).all()) for p in (*parts, *whole))
    gradients = {"shards": [p.grad for p in parts], "replicated": [p.grad for p in whole]}
    return {"norm": norm, **gradients, "parameters left alone": kept}


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    """The whole gradient as one vector in float64, unscaled and clipped."""
    norm, results = norm_of(given), list[dict[str, Any]]()
    for own in given:
        result: dict[str, Any] = {"norm": None, "shards": None, "replicated": None}
        if math.isfinite(norm):
            factor = min(1.0, own["max_norm"] / norm if norm else 1.0) / own["scale"]
            lists = {name: [g if g is None else g * factor for g in own[name]] for name in ("shards", "replicated")}
            result = {"norm": norm, **lists}
        results.append({**result, "parameters left alone": True})
    return results


def norm_of(given: Given) -> float:
    parts = [part for own in given for part in own["shards"]] + given[0]["replicated"]
    norm = torch.cat([part.double().reshape(-1) for part in parts if part is not None]).norm()
    return float(norm / given[0]["scale"])


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    """Norms that differ in their last digits let the copies of what is replicated drift apart."""
    if len(norms := {one["norm"] for one in got if one["norm"] is not None}) > 1:
        text = (
            f"the norms of the ranks differ in their last digits ({min(norms)!r}, {max(norms)!r}): so will the copies"
        )
        text += " of what is replicated. Ranks that add up by themselves do it in the same order"
        return Finding("DTL-MISTAKE", text, 0)
    return None


def why(case: Case, given: Given, record: Record) -> str:
    return f"{MAY_HELP}a rank may have no shards, a .grad may be None, all may be 0, and every rank makes each call"


EXAMPLE = [[torch.tensor([30.0])], [torch.full((3,), 20.0)]]
CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    example=[{"shards": s, "replicated": [torch.tensor([20.0])], "scale": 10.0, "max_norm": 1.0} for s in EXAMPLE],
    verify=verify,
    rules=[no_silent_rank(least_calls=lambda case, given: 1 + len(given[0]["earlier"]))],
    calls=lambda case: 1 + len(case.params.get("earlier", [])),
    why=why,
    reads=[lambda source: find_forbidden(source, TORCH_SCALERS), no_stores],
    rtol=1e-4,  # torch's clipping adds 1e-6 to the norm
    atol=1e-6,
)
