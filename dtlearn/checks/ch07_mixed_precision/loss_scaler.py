"""ch07.loss_scaler: a short training whose backward pass goes through float16, with overflows of several kinds."""

from __future__ import annotations

import math
from typing import Any

import torch

from dtlearn.grading import Case, Check, Finding, Given, difference, rules
from dtlearn.runtime.record.record import Record

from ..own_work import find_forbidden
from ._scalers import TORCH_SCALERS
from ._wrong_scalers import MISTAKES, Scaler

_WEIGHTS = 5
# Steps, one letter each: "." all is well; "*": infinity in the gradients of both weights; "+", "-", "n": infinity,
# minus infinity or NaN in those of the first; "2": infinity in those of the second; "?": infinity if S >= 4,096.
_CASES: dict[str, dict[str, Any]] = {
    "no overflow": {"steps": ".......", "init_scale": 64.0, "growth_interval": 3},
    "one overflow": {"steps": "..*......", "init_scale": 1024.0, "growth_interval": 4},
    "infinity, minus infinity and NaN": {"steps": "+.-.n.2..", "init_scale": 4096.0, "growth_interval": 2},
    "a scale that finds its place": {"steps": "????????????", "init_scale": 8192.0, "growth_interval": 3},
    "unscaled and clipped": {"steps": "...*...n.", "init_scale": 256.0, "growth_interval": 3, "clipped": True},
    "other factors, and a float16 loss": {
        "steps": "..*....",
        "init_scale": 1024.0,
        "growth_interval": 2,
        "growth_factor": 4.0,
        "backoff_factor": 0.25,
        "half": True,
    },
}
_LARGE = {"-": -60_000.0, "n": math.nan, "?": 2000.0}


def inputs(case: Case) -> Given:
    params, given = case.params, []
    names = ("init_scale", "growth_interval", "growth_factor", "backoff_factor")
    options = {"growth_factor": 2.0, "backoff_factor": 0.5} | {name: params[name] for name in names if name in params}
    for rank in range(case.world_size):
        g = case.generator(rank)
        data = 0.5 + torch.rand(len(params["steps"]), 2, _WEIGHTS, generator=g)
        for step, kind in enumerate(params["steps"]):
            if kind != ".":
                at = (step + rank) % _WEIGHTS
                which = {"*": [0, 1], "2": [1]}.get(kind, [0])
                data[step, which, at] = _LARGE.get(kind, 60_000.0)
        if params.get("clipped"):
            data[::2] *= 0.2  # short enough not to be clipped
        weights = torch.randn(2, _WEIGHTS, generator=g)
        job = {"clipped": params.get("clipped", False), "half": params.get("half", False), "options": options}
        given.append({"weights": weights, "data": data, **job})
    return given


def on_rank(answer: Any, weights: Any, data: Any, clipped: bool, half: bool, options: Any) -> Any:
    first, second, unused = (torch.nn.Parameter(w) for w in (*weights.clone(), torch.ones(1)))
    optimizer = torch.optim.SGD([first, unused, second], lr=0.25, momentum=0.5)
    calls: list[int] = []
    optimizer.register_step_post_hook(lambda *_: calls.append(1))
    used: list[int] = []  # torch's own, however it is reached
    torchs: Any = torch.amp.GradScaler
    kept = torchs.scale

    def noted(self: Any, loss: Any) -> Any:
        used.append(1)
        return kept(self, loss)

    torchs.scale = noted
    run = []
    try:
        scaler = answer(**options)
        if missing := [
            name for name in ("scale", "unscale_", "step", "update", "get_scale") if not hasattr(scaler, name)
        ]:
            return {"missing": missing, "run": [], "used": False}
        for x, y in data:
            calls.clear()
            optimizer.zero_grad()
            hidden = first.half() * x.half() + second.half() * y.half()
            loss = hidden.float().sum() / 64
            loss = loss.nan_to_num(1.0, 1.0, 1.0).clamp(-400, 400).half() if half else loss
            scaled = scaler.scale(loss)
            scaled.backward()
            if clipped:
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_([first, second], 0.02)
            scaler.step(optimizer)
            scaler.update()
            now = [parameter.detach().clone() for parameter in (first, second)]
            run.append({"loss": scaled.detach(), "calls": len(calls), "scale": scaler.get_scale(), "weights": now})
    finally:
        torchs.scale = kept
    return {"missing": [], "run": run, "used": bool(used)}


def trained(i: dict[str, Any], mistake: str = "") -> list[dict[str, Any]]:
    """What `on_rank` notes with our own scaler, with a mistake in it or none."""
    run: list[dict[str, Any]] = on_rank(lambda **options: Scaler(mistake, **options), **i)["run"]
    return run


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    """The scaled losses, the steps that were taken, the scale and the weights, step by step."""
    for rank, result in enumerate(got):
        if result["used"]:
            return Finding("DTL-RULE-NAME", f"rank {rank} uses torch.amp.GradScaler: write your own here", rank)
        if result["missing"]:
            text = f"what loss_scaler returned has no {', '.join(f'{name}()' for name in result['missing'])}"
            return Finding("DTL-VALUE-TYPE", text, rank)
    right, runs = [trained(i) for i in given], [_plain(result["run"]) for result in got]
    if _alike(right, runs):
        return None
    for rank, run in enumerate(runs):
        for step in run:
            if isinstance(step["loss"], torch.Tensor) and step["loss"].dtype != torch.float32:
                text = f"scale() returns {step['loss'].dtype}: the product with S may not fit into 16 bits"
                return Finding("DTL-VALUE-DTYPE", f"{text}; convert the loss first, .float()", rank)
    for mistake, (code, text) in MISTAKES.items():
        made = [trained(i, mistake) for i in given]
        if not _alike(made, right) and _alike(made, runs):
            return Finding(code, text)
    return _first_difference(case, right, runs)


def _plain(run: Any) -> Any:
    """With the scale as a float, if it came as a tensor of one element or as a whole number."""
    for step in run:
        scale = step["scale"]
        is_number = type(scale) is int or (isinstance(scale, torch.Tensor) and scale.numel() == 1)
        step["scale"] = float(scale) if is_number else scale
    return run


def _alike(runs: list[Any], others: list[Any]) -> bool:
    return not any(difference(a, b, 1e-5, 1e-7) for a, b in zip(runs, others, strict=True))


def _first_difference(case: Case, right: list[Any], runs: list[Any]) -> Finding | None:
    kinds = {".": "none", "-": "minus infinity", "n": "NaN", "?": "if S is 4,096 or more"}
    for rank, (run, wanted) in enumerate(zip(runs, right, strict=True)):
        for number, (a, b) in enumerate(zip(wanted, run, strict=True)):
            if a["calls"] != b["calls"]:
                overflow = kinds.get(case.params["steps"][number], "infinity")
                ought = "taken once" if a["calls"] else "skipped"
                did = ["skipped", "taken"][b["calls"]] if b["calls"] < 2 else f"taken {b['calls']} times"
                text = f"step {number + 1} should be {ought} and was {did} (overflow: {overflow})"
                code = "DTL-VALUE-TWICE" if b["calls"] > 1 else ""
                code = code or ("DTL-VALUE-SKIPPED" if a["calls"] else "DTL-VALUE-NOT-SKIPPED")
                return Finding(code, text, rank)
            if found := difference(a["scale"], b["scale"], 1e-5, 0, f"get_scale() after step {number + 1}"):
                return Finding(found.code, found.text, rank, None, found.advice)
            if found := difference(a["loss"], b["loss"], 1e-5, 0, f"scale(loss) in step {number + 1}"):
                return Finding(found.code, found.text, rank, None, found.advice)
            if found := difference(a["weights"], b["weights"], 1e-5, 1e-7, f"after step {number + 1} the weights"):
                return Finding(found.code, found.text, rank, None, found.advice)
    return None


def without_torchs(source: str) -> Finding | None:
    """A rule on the text: torch's scaler, and the functions that it is made of, are the answer itself."""
    why = "it is torch's answer. Write your own here"
    parts = ("torch._amp_update_scale_", "torch._amp_foreach_non_finite_check_and_unscale_")
    names = (*TORCH_SCALERS, "torch.amp", "torch.cuda.amp", "torch.cpu.amp", *parts)
    return find_forbidden(source, dict.fromkeys(names, why))


CHECK = Check(
    on_rank,
    inputs,
    None,
    cases=_CASES,
    verify=verify,
    may_change_inputs=True,
    reads=[without_torchs],
    rules=[rules.most_messages("0")],
)
