"""ch07.bug_hunt: a training loop with loss scaling, each of its three bugs in a case that shows this one, and together.

What a wrong loop leads to is played in the judge, in float64; the tolerance is that of float16.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch

from dtlearn.grading import Case, Check, Finding, Given, Mistake, compare, difference
from dtlearn.runtime.record.record import Record

_ROWS, _FEATURES = 4, 3
_HUGE = 1e4  # a target whose scaled gradient is too large for float16
# `overflows`: {step: the ranks that have one}, -1 for the last; `limit`: max_norm as a multiple of the first norm;
# `lr` is 0.1 and `scale` 1024 where they are left out;
# `kinds`: {step: what overflows}, where it is not all parameters, to infinity. The model is still as it was then.
_CASES: dict[str, dict[str, Any]] = {
    "an overflow on one rank": {"steps": 4, "overflows": {1: [-1]}, "gamma": 1.0, "limit": 1e6},
    "long gradients": {"steps": 2, "overflows": {}, "gamma": 1.0, "limit": 0.5, "lr": 0.2, "scale": 256.0},
    "the learning rate": {"steps": 4, "overflows": {1: range(4)}, "gamma": 0.5, "limit": 1e6, "lr": 0.07},
    "other overflows": {
        "steps": 4,
        "overflows": {0: [-1], 1: [0], 2: [-1]},
        "kinds": {0: "weight", 1: "NaN", 2: "bias"},
        "gamma": 1.0,
        "limit": 1e6,
    },
    "all together": {"steps": 6, "overflows": {1: [0], 3: [-1]}, "gamma": 0.7, "limit": 0.5, "scale": 512.0},
}
_SAYS = {
    "scaled": (
        "DTL-VALUE-CLIP-SCALED",
        "the gradients are clipped while they are still scaled, and divided by the scale after that: they are far too "
        "short; unscale, then clip",
    ),
    "never": ("DTL-VALUE-CLIP", "gradients longer than max_norm are not clipped, or too late, after the step"),
    "own": (
        "DTL-VALUE-CLIP",
        "each rank shortens its own gradient, and the mean of these points elsewhere: average first, then clip",
    ),
    "each": ("DTL-VALUE-CLIP", "each parameter is clipped by itself: max_norm is for the gradient of all together"),
    "values": (
        "DTL-VALUE-BY-VALUE",
        "each value is clipped to max_norm by itself, which changes the gradient's direction: clip its norm",
    ),
    "largest": (
        "DTL-VALUE-OTHER-NORM",
        "the gradient is clipped by its largest absolute value: the norm is the square root of the sum of all squares",
    ),
    "always": (
        "DTL-VALUE-SCHEDULE",
        "the learning rate is lowered after a skipped step, too: the schedule moves only when a step was taken",
    ),
    "fixed": ("DTL-VALUE-SCHEDULE", "the learning rate is never lowered: the schedule moves with each step taken"),
    "early": (
        "DTL-VALUE-SCHEDULE",
        "the learning rate is lowered before the step, so the first one is made with lr * gamma: optimizer.step(), "
        "then scheduler.step()",
    ),
    "first": (
        "DTL-VALUE-SCHEDULE",
        "the learning rate is lowered before each step, and in skipped ones too: scheduler.step() comes after "
        "optimizer.step(), and only if that was called",
    ),
    "late": ("DTL-VALUE-SCALE", "the scales are one step late: each is to be that after its step"),
    "grows": ("DTL-VALUE-SCALE", "the scale is doubled after a step that is taken: it stays as it is"),
    "inverted": ("DTL-VALUE-SCHEDULE", "the learning rate is lowered after skipped steps only, and not after others"),
    "kept": ("DTL-VALUE-SCALE", "the scale is not halved after an overflow"),
    "sum": (
        "DTL-VALUE-FACTOR",
        "the gradients are added up over the ranks, and not divided by their number: asked for is the mean",
    ),
    "lr": ("DTL-VALUE-ARGUMENT-IGNORED", "the learning rate is 0.1 at first, whatever lr is"),
    "loss scale": ("DTL-VALUE-ARGUMENT-IGNORED", "the scale is 1024 at first, whatever the argument is"),
    "local": ("DTL-VALUE-NO-SYNC", "every rank steps with the gradient of its own batch: the mean is missing"),
}


@dataclass(frozen=True)
class _Run:
    """How a loop is played. The defaults are right; other values are keys of `_SAYS`."""

    clip: str = ""
    schedule: str = ""
    scale: str = ""
    mean: str = ""
    fixed: str = ""

    @property
    def wrong(self) -> list[str]:
        return [name for name in (self.clip, self.schedule, self.scale, self.mean, self.fixed) if name]


def inputs(case: Case) -> Given:
    g, n = case.generator(), case.world_size
    slope = torch.tensor([[1.0, -2.0, 1.5]]).T
    weight, bias = 0.1 * torch.randn(1, _FEATURES, generator=g), torch.zeros(1)
    given: Given = []
    for rank in range(n):
        batches = []
        for step in range(case.params["steps"]):
            x = torch.randn(_ROWS, _FEATURES, generator=g) + 0.5
            y = x @ slope + 1.0 + rank
            if rank in [who % n for who in case.params["overflows"].get(step, [])]:
                x, y = _overflowing(case.params.get("kinds", {}).get(step, ""), weight, x, y)
            batches.append([x, y])
        given.append({"weight": weight, "bias": bias, "batches": batches})
    first = [_gradient([weight.double(), bias.double()], *i["batches"][0]) for i in given]
    norm = _length([torch.stack(column).mean(0) for column in zip(*first, strict=True)])
    for i in given:
        max_norm = case.params["limit"] * norm
        lr, scale = case.params.get("lr", 0.1), case.params.get("scale", 1024.0)
        i["numbers"] = {"lr": lr, "gamma": case.params["gamma"], "max_norm": max_norm, "scale": scale}
    return given


def _overflowing(
    kind: str, weight: torch.Tensor, x: torch.Tensor, y: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Data whose scaled gradient has infinities in float16, of all parameters or of this one; or only NaN."""
    x, y = x.clone(), y.clone()
    if kind == "weight":  # errors of about 1, times large numbers
        x[0] = 500.0
        y[:] = x @ weight.T + 1.0
    elif kind == "bias":  # errors that are too large only when they are added up, times small numbers
        x, y[:] = x * 0.01, -300.0
    else:
        y[0] = _HUGE
        if kind == "NaN":  # inf - inf
            x[1], y[1] = x[0], -_HUGE
    return x, y


def on_rank(answer: Any, weight: Any, bias: Any, batches: Any, numbers: Any) -> Any:
    model = torch.nn.Linear(weight.shape[1], 1)
    model.load_state_dict({"weight": weight, "bias": bias})
    scales = answer(model, [tuple(pair) for pair in batches], **numbers)
    return {"scales": scales, "parameters": [p.detach() for p in model.parameters()]}


def _gradient(model: list[torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
    error = 2 * (x.double() @ model[0].T + model[1] - y) / len(x)
    return [error.T @ x.double(), error.sum(0)]


def _length(gradient: list[torch.Tensor]) -> float:
    return math.sqrt(sum(float(g.square().sum()) for g in gradient))


def _clipped(gradient: list[torch.Tensor], limit: float) -> list[torch.Tensor]:
    return [g * min(1.0, limit / (_length(gradient) + 1e-6)) for g in gradient]


def _play(case: Case, given: Given, run: _Run) -> list[dict[str, Any]]:
    models = [[i["weight"].double(), i["bias"].double()] for i in given]
    numbers, scales = given[0]["numbers"], list[float]()
    limit, rate, scale = numbers["max_norm"], 0.1 if run.fixed == "lr" else numbers["lr"], numbers["scale"]
    scale = first = 1024.0 if run.fixed == "loss scale" else scale
    for step in range(case.params["steps"]):
        batches = [i["batches"][step] for i in given]
        skips = step in case.params["overflows"]
        rate *= numbers["gamma"] if run.schedule == "first" or (run.schedule == "early" and not skips) else 1.0
        if not skips:
            own = [_gradient(m, *batch) for m, batch in zip(models, batches, strict=True)]
            own = [_clipped(g, limit) for g in own] if run.clip == "own" else own
            mean = [torch.stack(column).mean(0) for column in zip(*own, strict=True)]
            for rank, model in enumerate(models):
                gradient = own[rank] if run.mean == "local" else mean
                gradient = [g * len(given) for g in gradient] if run.mean == "sum" else gradient
                if run.clip == "each":
                    gradient = [_clipped([g], limit)[0] for g in gradient]
                elif run.clip == "values":
                    gradient = [g.clamp(-limit, limit) for g in gradient]
                elif run.clip == "largest":
                    gradient = [g * min(1.0, limit / max(float(h.abs().max()) for h in gradient)) for g in gradient]
                elif run.clip in ("", "scaled"):
                    gradient = _clipped(gradient, limit / (scale if run.clip else 1.0))
                models[rank] = [p - rate * g for p, g in zip(model, gradient, strict=True)]
        elif run.scale != "kept":
            scale /= 2
        if run.schedule == "always" or (run.schedule == "inverted" and skips) or (not run.schedule and not skips):
            rate *= case.params["gamma"]
        scale *= 2.0 if run.scale == "grows" and not skips else 1.0
        scales.append(scale)
    scales = [first, *scales[:-1]] if run.scale == "late" else scales
    return [{"scales": scales, "parameters": [p.float() for p in model]} for model in models]


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    return _play(case, given, _Run())


def mistakes(case: Case, given: Given) -> list[Mistake]:
    runs = [_Run(clip=clip, schedule=moves) for clip, moves in product(("", "scaled"), ("", "always"))]
    runs += [_Run(clip=clip) for clip in ("never", "each", "values", "largest")]
    runs += [_Run(schedule=moves) for moves in ("fixed", "inverted", "early", "first")]
    runs += [_Run(scale=scale) for scale in ("kept", "grows", "late")]
    runs += [_Run(fixed=name) for name in ("lr", "loss scale")]
    runs += [_Run(clip="own"), _Run(mean="local"), _Run(mean="sum")] if case.world_size > 1 else []
    found = []
    for run in sorted(runs, key=lambda run: len(run.wrong)):
        if says := [_SAYS[name] for name in run.wrong]:
            text = "; and ".join(text for _, text in says)
            found.append(Mistake(says[0][0], text, _play(case, given, run)))
    return found


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    """Who skipped a step that others took; then the values."""
    for rank, one in enumerate(got):
        if not isinstance(one, dict) or set(one) != {"scales", "parameters"} or not isinstance(one["parameters"], list):
            return Finding("DTL-RESULT", f"rank {rank} sent no readable result", rank)
        scales, steps = one["scales"], case.params["steps"]
        if isinstance(scales, list | tuple) and len(scales) != steps:
            text = f"rank {rank} returned {len(scales)} scales for {steps} batches: one scale after each step, "
            return Finding("DTL-VALUE-SHAPE", f"{text}skipped ones too", rank)
    bad = [r for r, one in enumerate(got) for p in one["parameters"] if not bool(torch.as_tensor(p).isfinite().all())]
    if bad and case.params["overflows"]:
        return _not_skipped(case, given, got, bad[0])
    start = [given[0]["weight"], given[0]["bias"]]
    if not case.params["overflows"] and all(not difference(start, one["parameters"], 0, 0) for one in got):
        return Finding("DTL-VALUE-STALE", "the parameters are on every rank what they were: nothing was trained", 0)
    right = expected(case, given)
    found = compare(_VALUES, case, given, right, got)
    missed = [step for step in case.params["overflows"] if not any(_halved(given, one["scales"], step) for one in got)]
    until = right[0]["scales"][: missed[0]] if missed else []
    seen = missed and all(list(one["scales"])[: missed[0]] == until for one in got)  # as halved as it should be before
    if found and found.code == "DTL-VALUE" and seen and not bad:
        text = f"no rank halved its scale after step {missed[0]}, which overflows in float16, and all parameters are "
        text += "finite: does autocast still lead to float16, and do the infinities stay in the gradients?"
        return Finding("DTL-VALUE-MISSED-INF", text, found.rank)
    return found


def _not_skipped(case: Case, given: Given, got: list[Any], rank: int) -> Finding:
    """Which step this rank took that it should have skipped."""
    took = [[step for step in case.params["overflows"] if not _halved(given, one["scales"], step)] for one in got]
    step = next(iter(took[rank]), 0)
    owners = [who % case.world_size for who in case.params["overflows"][step]] if took[rank] else []
    kind = case.params.get("kinds", {}).get(step, "")
    text = f"rank {rank} made step {step} with an infinite gradient, and its parameters are infinite or NaN"
    if any(step not in other for other in took):
        if rank in owners:
            text += (
                ": it has the overflow itself, and others skipped the step; all ranks have to make the same decision"
            )
        else:
            text += (
                ": the overflow was on another rank, and is in the mean; all ranks have to look at the same gradient"
            )
        return Finding("DTL-VALUE-OWN-OVERFLOW", text, rank)
    if kind == "NaN" and took[rank]:
        text = f"rank {rank} made step {step} with gradients of NaN, and so are its parameters: inf - inf is NaN, for "
        return Finding(
            "DTL-VALUE-MISSED-NAN", f"{text}which isinf() is False and no comparison is True; isfinite()", rank
        )
    if kind and took[rank]:
        text = (
            f"rank {rank} made step {step}, in which only the gradient of the {kind} is infinite, and no loss is large"
        )
        return Finding(
            "DTL-VALUE-ONE-GRADIENT", f"{text}: look at all values of all gradients, after the backward pass", rank
        )
    return Finding("DTL-VALUE-NOT-SKIPPED", f"{text}: such a step has to be skipped", rank)


def _halved(given: Given, scales: Any, step: int) -> bool:
    """Whether this list of scales says that the step was skipped."""
    try:
        return bool(scales[step] < ([given[0]["numbers"]["scale"], *scales][step]))
    except (TypeError, IndexError):
        return False


_VALUES = Check(on_rank, inputs, expected, cases=_CASES, mistakes=mistakes, rtol=5e-3, atol=3e-3)
CHECK = Check(on_rank, inputs, None, cases=_CASES, verify=verify)
