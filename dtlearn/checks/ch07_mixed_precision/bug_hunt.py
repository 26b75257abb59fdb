"""ch07.bug_hunt: a training loop with loss scaling, each of its three bugs in a case that shows this one, and together.

Overflows come as in training, from float16: by a target that is too large, by inf - inf, or in one gradient only.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import mse_loss
from torch.nn.utils import get_total_norm

from dtlearn.grading import Case, Check, Edit, Given
from dtlearn.runtime.record.record import Record

from .. import MAY_HELP

ROWS, FEATURES, NO_LIMIT = 4, 3, 1e6
HUGE = 1e4  # a target whose scaled gradient is too large for float16
MEAN = (
    "a step uses the mean gradient over all ranks' batches, unscaled; scale and learning rate are those that are given"
)
SKIP = (
    "where the mean gradient is infinite or NaN, all ranks skip the step and halve the scale, and otherwise no rank "
    "does: all have to look at the same gradient, and at all of it"
)
# Per case: `overflows`, {step: (the rank, -1 for the last, and what overflows)}; `limit`: max_norm as a multiple of
# the first norm.
CASES: dict[str, dict[str, Any]] = {
    "no overflow": {"says": MEAN, "steps": 2},
    "long gradients": {
        "says": "a mean gradient that is longer than max_norm is scaled down to max_norm, after it is unscaled",
        "steps": 2,
        "limit": 0.5,
    },
    "an overflow on one rank": {"says": SKIP, "steps": 3, "overflows": {1: (-1, "all")}},
    "a gradient of NaN": {"says": SKIP, "steps": 2, "overflows": {0: (0, "NaN")}},
    "an overflow in the weight only": {"says": SKIP, "steps": 2, "overflows": {0: (0, "weight")}},
    "an overflow in the bias only": {"says": SKIP, "steps": 2, "overflows": {0: (-1, "bias")}},
    "the learning rate": {
        "says": "the learning rate is multiplied by gamma after each step that is taken, and not after others",
        "steps": 3,
        "gamma": 0.5,
    },
    "the learning rate, and an overflow": {
        "says": "the learning rate stays after a step that is skipped: the schedule moves only when a step was taken",
        "steps": 3,
        "gamma": 0.5,
        "overflows": {1: (0, "all")},
    },
}
START = "    # BEGIN SOLUTION: the same program without its three bugs\n"
# The part of the solution that as_found has not word for word, from the backward pass on.
BODY = """(loss * scale).backward()
        for p in parameters:
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()
        overflow = not all(p.grad.isfinite().all() for p in parameters)
        for p in parameters:
            p.grad /= scale
        clip_grad_norm_(parameters, max_norm)
        if overflow:
            scale /= 2
        else:
            optimizer.step()
            scheduler.step()
        scales.append(scale)
"""
REDUCED = (
    "        for p in parameters:\n            dist.all_reduce(p.grad)\n            p.grad /= dist.get_world_size()\n"
)
LOOKED = "        overflow = not all(p.grad.isfinite().all() for p in parameters)\n"
UNSCALED = "        for p in parameters:\n            p.grad /= scale\n"
CLIP = "clip_grad_norm_(parameters, max_norm)"
CLIPPED, STEPPED, MOVED = f"        {CLIP}\n", "            optimizer.step()\n", "            scheduler.step()\n"
DECIDED = f"        if overflow:\n            scale /= 2\n        else:\n{STEPPED}{MOVED}"
EACH, MOVES = "        for p in parameters:\n", "        scheduler.step()\n"


def body(*changes: tuple[str, str]) -> dict[str, str]:
    text = BODY
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return {BODY: text}


def asked(call: str) -> dict[str, str]:
    """An edit in which each rank looks at its own gradient, and a call then combines the flags."""
    flag = "        flag = torch.tensor(float(overflow))\n"
    flags = f"{LOOKED}{flag}        dist.{call}\n        overflow = flag.item() > 0\n"
    return body((LOOKED, ""), (REDUCED, flags + REDUCED))


EDITS = (
    Edit("each rank decides by its own gradient: a rank without an overflow makes a step with the infinities that are "
         "in the mean. All ranks have to look at the same gradient", body((LOOKED, ""), (REDUCED, LOOKED + REDUCED))),
    Edit("rank 0 alone halves its scale and skips the step: all ranks have to make the same decision",
         body((LOOKED, f"{LOOKED}        overflow = overflow and dist.get_rank() == 0\n"))),
    Edit("rank 0's own gradient decides for all: an overflow on another rank is in the mean, and is not noticed",
         asked("broadcast(flag, 0)")),
    Edit("a step is skipped only if all ranks overflowed (MIN, or a product), or most of them: one rank is enough",
         asked("all_reduce(flag, dist.ReduceOp.MIN)")),
    Edit("a step is made with an infinite gradient, and so the parameters are infinite or NaN: it has to be skipped",
         body(("if overflow:\n            scale /= 2\n        else:\n", "if overflow:\n            scale /= 2\n"
               "        if True:\n"))),
    Edit("an overflow is never noticed: a step is made with infinite gradients, and the scale stays",
         body((LOOKED, "        overflow = False\n"))),
    Edit("the losses decide whether the step is skipped: gradients can overflow in float16 where no loss does",
         body((LOOKED, "        bad = (loss.detach() * scale).isfinite().logical_not().float()\n"
                       "        dist.all_reduce(bad)\n        overflow = bad.item() > 0\n"))),
    Edit("gradients of NaN are not noticed: inf - inf is NaN, for which isinf() is False and no comparison is True; "
         "use isfinite()", body(("not all(p.grad.isfinite().all()", "any(p.grad.isinf().any()"))),
    Edit("infinite gradients are not noticed, only NaN", body(("not all(p.grad.isfinite().all()",
                                                               "any(p.grad.isnan().any()"))),
    Edit("only the first parameter's gradient decides: look at all values of all gradients, after the backward pass",
         body((LOOKED, LOOKED.replace("in parameters)", "in parameters[:1])")))),
    Edit("only the last parameter's gradient decides: look at all values of all gradients, after the backward pass",
         body((LOOKED, LOOKED.replace("in parameters)", "in parameters[-1:])")))),
    Edit("the gradients are clipped while they are still scaled, and divided by the scale after that: they are far too "
         "short; unscale, then clip", body((UNSCALED + CLIPPED, CLIPPED + UNSCALED))),
    Edit("gradients longer than max_norm are not clipped, or too late, after the step", body((CLIPPED, ""))),
    Edit("each rank shortens its own gradient, and the mean of these points elsewhere: average first, then clip",
         body((CLIPPED, ""), (UNSCALED, ""), (REDUCED, UNSCALED + CLIPPED + REDUCED))),
    Edit("each parameter is clipped by itself: max_norm is for the gradient of all together",
         body((CLIPPED, f"{EACH}            clip_grad_norm_(p, max_norm)\n"))),
    Edit("each value is clipped to max_norm by itself, which changes the gradient's direction: clip its norm",
         body((CLIP, "torch.nn.utils.clip_grad_value_(parameters, max_norm)"))),
    Edit("the gradient is clipped by its largest absolute value: the norm is the square root of the sum of all squares",
         body((CLIP, "clip_grad_norm_(parameters, max_norm, norm_type=torch.inf)"))),
    Edit("the learning rate is lowered after a skipped step, too: the schedule moves only when a step was taken",
         body((MOVED, MOVES))),
    Edit("the learning rate is never lowered: the schedule moves with each step taken", body((MOVED, ""))),
    Edit("the learning rate is lowered before the step, so the first one is made with lr * gamma: optimizer.step(), "
         "then scheduler.step()", body((STEPPED + MOVED, MOVED + STEPPED))),
    Edit("the learning rate is lowered before each step, and in skipped ones too: scheduler.step() comes after "
         "optimizer.step(), and only if that was called", body((DECIDED, MOVES + DECIDED.replace(MOVED, "")))),
    Edit("the learning rate is lowered after skipped steps only, and not after others",
         body((MOVED, ""), ("scale /= 2\n", f"scale /= 2\n{MOVED}"))),
    Edit("the scales are one step late: each is to be that after its step",
         body(("        scales.append(scale)\n", ""), (DECIDED, f"        scales.append(scale)\n{DECIDED}"))),
    Edit("the scale is doubled after a step that is taken: it stays as it is",
         body((MOVED, f"{MOVED}            scale *= 2\n"))),
    Edit("the scale is not halved after an overflow", body(("scale /= 2", "pass"))),
    Edit("the gradients are added up over the ranks, and not divided by their number: asked for is the mean",
         body(("            p.grad /= dist.get_world_size()\n", ""))),
    Edit("every rank steps with the gradient of its own batch: the mean is missing",
         body((REDUCED, ""))),
    Edit("the optimizer steps with gradients that are still scaled: they are divided by the scale nowhere",
         body((UNSCALED, ""))),
    Edit("the learning rate is 0.1 at first, whatever lr is", {START: f"{START}    lr = 0.1\n"}),
    Edit("the scale is 1024 at first, whatever the argument is", {START: f"{START}    scale = 1024.0\n"}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    p, g, n = case.params, case.generator(), case.world_size
    slope = torch.tensor([[1.0, -2.0, 1.5]]).T
    weight, given = 0.1 * torch.randn(1, FEATURES, generator=g), list[dict[str, Any]]()
    for rank in range(n):
        batches = []
        for step in range(p["steps"]):
            x = torch.randn(ROWS, FEATURES, generator=g) + 0.5
            y = x @ slope + 1.0 + rank
            who, kind = p.get("overflows", {}).get(step, (None, ""))
            if who is not None and rank == who % n:
                x, y = overflowing(kind, weight, x, y)
            batches.append([x, y])
        given.append({"weight": weight, "batches": batches})
    numbers = {"lr": 0.07, "gamma": p.get("gamma", 1.0), "max_norm": NO_LIMIT, "scale": 256.0}
    if "limit" in p:
        numbers["max_norm"] = p["limit"] * float(get_total_norm(mean_gradient(model_of(weight), given, 0, 1.0)))
    return [{**own, **numbers} for own in given]


def overflowing(kind: str, weight: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Data whose gradient, times 256, has infinities in float16: in all parameters, or in this one; or NaN only."""
    x, y = x.clone(), y.clone()
    if kind == "weight":  # errors of about 1, times a large number
        x[0] = 2000.0
        y[:] = x @ weight.T + 1.0
    elif kind == "bias":  # errors that are too large only when they are added up, times small numbers
        x, y[:] = x * 0.01, -300.0
    else:
        y[0] = HUGE
        if kind == "NaN":  # inf - inf
            x[1], y[1] = x[0], -HUGE
    return x, y


def model_of(weight: torch.Tensor) -> torch.nn.Linear:
    model = torch.nn.Linear(FEATURES, 1)
    model.load_state_dict({"weight": weight, "bias": torch.zeros(1)})
    return model


def mean_gradient(model: torch.nn.Linear, given: Given, step: int, scale: float) -> list[torch.Tensor]:
    """The unscaled mean gradient over all ranks' batches, computed in one process."""
    model.zero_grad()
    for own in given:
        x, y = own["batches"][step]
        with torch.autocast("cpu", dtype=torch.float16):
            out = model(x)
        (mse_loss(out.float(), y) * scale).backward()
    return [parameter.grad / scale / len(given) for parameter in model.parameters() if parameter.grad is not None]


def on_rank(answer: Any, weight: Any, batches: Any, **numbers: Any) -> Any:
    model = torch.nn.Linear(weight.shape[1], 1)
    model.load_state_dict({"weight": weight, "bias": torch.zeros(1)})
    scales = answer(model, [tuple(pair) for pair in batches], **numbers)
    parameters = {name: p.detach() for name, p in model.named_parameters()}
    finite = all(bool(p.isfinite().all()) for p in parameters.values())
    return {"scales": scales, "model": parameters if finite else "infinite or NaN"}


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    """One process trains with all data, and clips and skips by the gradient that it sees."""
    model, scales = model_of(given[0]["weight"]), list[float]()
    rate, gamma, max_norm, scale = (given[0][name] for name in ("lr", "gamma", "max_norm", "scale"))
    for step in range(case.params["steps"]):
        gradient = mean_gradient(model, given, step, scale)
        norm = float(get_total_norm(gradient))
        if norm < float("inf"):  # NaN is not
            for parameter, g in zip(model.parameters(), gradient, strict=True):
                parameter.data -= rate * min(1.0, max_norm / norm) * g
            rate *= gamma
        else:
            scale /= 2
        scales.append(scale)
    return [{"scales": scales, "model": {k: p.detach() for k, p in model.named_parameters()}} for _ in given]


def why(case: Case, given: Given, record: Record) -> str:
    """The hint for a run that raised or waits."""
    return f"{MAY_HELP}every rank makes each call in each step, also one that overflows" if case.world_size > 1 else ""


EXAMPLE = inputs(Case("an overflow", 2, 0, {"steps": 3, "overflows": {1: (1, "all")}, "gamma": 0.5, "limit": 0.5}))
CHECK = Check(on_rank, inputs, expected, cases=CASES, edits=EDITS, example=EXAMPLE, why=why, rtol=5e-3, atol=3e-3)
