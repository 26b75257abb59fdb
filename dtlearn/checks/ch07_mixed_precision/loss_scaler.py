"""ch07.loss_scaler: a short training whose backward pass goes through float16, with overflows of several kinds."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from typing import Any

import torch

from dtlearn.grading import Case, Check, Finding, Given, difference, rules
from dtlearn.runtime.record.record import Record

from ..own_work import find_forbidden
from . import TORCH_SCALERS
from ._wrong_scalers import MISTAKES, Scaler

_WEIGHTS = 5
# Steps, one letter each: "." all is well; "*": infinity in the gradient of the first weight and NaN in that of the
# second; "+", "-", "n": infinity, minus infinity or NaN in the first; "2": infinity in the second; "?": infinity in
# both if S >= 4,096; "N": NaN in both; "L": large, finite gradients of a third weight, whose sum is no float32 number,
# nor is the square of one; "M": gradients near the largest float32 number, 3.403e38, and minus that.
# `two`: a second scaler is used in turn with the first, for the same steps backwards. `by_default`: it is also counted
# after how many good steps a scaler grows that was given no interval; without backward passes, as the steps are many.
_CASES: dict[str, dict[str, Any]] = {
    "no overflow": {"steps": "..........", "init_scale": 16384.0, "growth_interval": 3},
    "one overflow": {"steps": "..*......", "init_scale": 1024.0, "growth_interval": 4},
    "infinity, minus infinity and NaN": {"steps": "+.-.n.2.....", "growth_interval": 3},
    "a scale that finds its place": {"steps": "??????????????", "init_scale": 1024.0, "growth_interval": 3},
    "unscaled and clipped": {
        "steps": "....*...N.",
        "init_scale": 256.0,
        "growth_interval": 3,
        "clipped": True,
        "two": True,
    },
    "large, finite gradients": {"steps": "..LNNN.", "init_scale": 2.0, "growth_interval": 9},
    "a gradient near the largest number": {"steps": "..M...", "init_scale": 1.0, "growth_interval": 9},
    "other factors, and a float16 loss": {
        "steps": "..N......",
        "init_scale": 1024.0,
        "growth_interval": 3,
        "growth_factor": 4.0,
        "backoff_factor": 0.125,
        "half": True,
    },
    "no arguments": {"steps": "..", "by_default": True},
}
_INTERVAL = 2000  # the default
_THIRD = {"L": [1.2e38] * 3, "M": [3.4e38, -3.4e38, 0.0]}
_LARGE = {"-": -60_000.0, "n": math.nan, "N": math.nan, "?": 2000.0}


def inputs(case: Case) -> Given:
    params, given = case.params, []
    names = ("init_scale", "growth_interval", "growth_factor", "backoff_factor")
    options = {name: params[name] for name in names if name in params}
    for rank in range(case.world_size):
        g = case.generator(rank)
        data = 0.5 + torch.rand(len(params["steps"]), 2, _WEIGHTS, generator=g)
        for step, kind in enumerate(params["steps"]):
            if kind not in ".LM":
                at = (step + rank) % _WEIGHTS
                which = [0, 1] if kind in "?N" else [1] if kind == "2" else [0]
                data[step, which, at] = _LARGE.get(kind, 60_000.0)
                data[step, 1, at] = math.nan if kind == "*" else data[step, 1, at]
        if params.get("clipped"):
            data[::2] *= 0.2  # short enough not to be clipped
        weights = torch.randn(2, _WEIGHTS, generator=g)
        third = [_THIRD.get(kind, [0.0] * 3) for kind in params["steps"]]
        large = third if any(map(any, third)) else None
        job = {name: params.get(name, False) for name in ("clipped", "half", "two", "by_default")}
        given.append({"weights": weights, "data": data, "large": large, "options": options, **job})
    return given


def on_rank(
    answer: Any,
    weights: Any,
    data: Any,
    large: Any,
    clipped: bool,
    half: bool,
    two: bool,
    by_default: bool,
    options: Any,
    watch: bool = True,  # False: for what the judge itself plays, which takes a fifth of the time without
) -> Any:
    from contextlib import nullcontext
    from itertools import zip_longest

    from torch.utils._python_dispatch import TorchDispatchMode

    class Watch(TorchDispatchMode):
        """Notes whether the operations run that torch's scalers are made of, however they are reached."""

        seen = False

        def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            Watch.seen |= "_amp_" in op.name()
            return op(*args, **(kwargs or {}))

    def train(scaler: Any, data: Any, run: list[Any], moved: list[int]) -> Iterator[None]:
        """Notes each step, and those after which a gradient lies in other memory; stops before step() and update()."""
        first, second, third, unused = (
            torch.nn.Parameter(w) for w in (*weights.clone(), torch.zeros(3), torch.ones(1))
        )
        groups = [{"params": [first, unused]}, {"params": [third, second]}]
        groups = [{"params": [first, third, unused, second]}] if clipped else groups
        optimizer = torch.optim.SGD(groups, lr=0.25, momentum=0.5)
        calls: list[int] = []
        optimizer.register_step_post_hook(lambda *_: calls.append(1))
        for step, (x, y) in enumerate(data):
            calls.clear()
            optimizer.zero_grad()
            hidden = first.half() * x.half() + second.half() * y.half()
            loss = hidden.float().sum() / 64
            loss = loss.nan_to_num(1.0, 1.0, 1.0).clamp(-400, 400).half() if half else loss
            loss = loss if large is None else loss + (third * torch.tensor(large[step])).sum()
            scaled = scaler.scale(loss)
            scaled.backward()
            gradients = {p: p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None}
            if clipped:
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_([first, second], 0.02)
            yield
            scaler.step(optimizer)
            if any(p.grad is not None and p.grad.data_ptr() != g.data_ptr() for p, g in gradients.items()):
                moved.append(step + 1)
            yield
            scaler.update()
            now = [parameter.detach().clone() for parameter in (first, second, third)]
            run.append({"loss": scaled.detach(), "calls": len(calls), "scale": scaler.get_scale(), "weights": now})

    def in_turn(data: list[Any]) -> tuple[list[list[Any]], list[int]]:
        """With a scaler for each of these: what is noted of each."""
        runs: list[list[Any]] = [[] for _ in data]
        moved: list[int] = []
        made = [train(answer(**options), own, run, moved) for own, run in zip(data, runs, strict=True)]
        for _ in zip_longest(*made):
            pass
        return runs, moved

    def first_growth() -> int:
        """After how many good steps a scaler without arguments has another scale; 0: not within 2,001."""
        scaler, still = answer(), torch.nn.Parameter(torch.zeros(1))
        optimizer = torch.optim.SGD([still])
        still.grad, loss, first = torch.zeros(1), torch.ones(()), scaler.get_scale()
        for step in range(2001):
            scaler.scale(loss)
            scaler.step(optimizer)
            scaler.update()
            if scaler.get_scale() != first:
                return step + 1
        return 0

    with Watch() if watch else nullcontext():
        methods = ("scale", "unscale_", "step", "update", "get_scale")
        scaler = answer(**options)
        missing = [name for name in methods if not hasattr(scaler, name)]
        (run,), moved = ([[]], []) if missing else in_turn([data])
        beside = in_turn([data, data.flip(0)])[0] if two and not missing else []
    grows_after = first_growth() if by_default and not missing else 0
    notes = {"beside": beside, "moved": moved, "grows_after": grows_after}
    return {"missing": missing, "run": run, "used": Watch.seen, **notes}


def trained(i: dict[str, Any], mistake: str = "") -> list[dict[str, Any]]:
    """What `on_rank` notes with our own scaler, with a mistake in it or none."""
    run: list[dict[str, Any]] = on_rank(
        lambda **options: Scaler(mistake, **options), **i | {"two": False, "by_default": False}, watch=False
    )["run"]
    return run


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    """The scaled losses, the steps that were taken, the scale and the weights, step by step."""
    for rank, result in enumerate(got):
        if result["used"]:
            text = f"rank {rank} uses what torch.amp.GradScaler is made of: write your own here"
            return Finding("DTL-RULE-NAME", text, rank)
        if result["missing"]:
            text = f"what loss_scaler returned has no {', '.join(f'{name}()' for name in result['missing'])}"
            return Finding("DTL-VALUE-TYPE", text, rank)
    right, runs = [trained(i) for i in given], [_plain(result["run"]) for result in got]
    if _alike(right, runs):
        for rank, (result, i) in enumerate(zip(got, given, strict=True)):
            if result["moved"]:
                text = f"the gradients lie in other memory after step {result['moved'][0]}: divide them in place (/= or"
                return Finding("DTL-VALUE-REPLACED", f"{text} div_), as others may hold them (DDP's buckets)", rank)
            both = [right[rank], trained(i | {"data": i["data"].flip(0)})]
            if i["two"] and not _alike(both, [_plain(run) for run in result["beside"]]):
                text = "one scaler is right alone, and wrong beside a second one: what belongs to a scaler must not be "
                return Finding("DTL-VALUE-SHARED", f"{text}shared, in a dict of the module or of the class", rank)
            if i["by_default"] and result["grows_after"] != _INTERVAL:
                did = f"grows after {n:,} good steps" if (n := result["grows_after"]) else "does not grow after 2,001"
                text = (
                    f"without a growth_interval the scale {did}, and should after {_INTERVAL:,}: its default is wrong"
                )
                return Finding("DTL-VALUE-INTERVAL", text, rank)
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
    kinds = {".": "none", "L": "none", "-": "minus infinity", "n": "NaN", "N": "NaN", "?": "if S is 4,096 or more"}
    kinds["*"] = "infinity and NaN"
    for rank, (run, wanted) in enumerate(zip(runs, right, strict=True)):
        for number, (a, b) in enumerate(zip(wanted, run, strict=True)):
            if a["calls"] != b["calls"]:
                overflow = kinds.get(case.params["steps"][number], "infinity")
                ought = "taken once" if a["calls"] else "skipped"
                did = ["skipped", "taken"][b["calls"]] if b["calls"] < 2 else f"taken {b['calls']} times"
                text = f"step {number + 1} should be {ought} and was {did} (overflow: {overflow})"
                code = "DTL-VALUE-DONE-TWICE" if b["calls"] > 1 else ""
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
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_amp_"):  # of torch, torch.ops.aten, ...
            return Finding("DTL-RULE-NAME", f"line {node.lineno} uses {node.attr}: {why}", line=node.lineno)
    names = (*TORCH_SCALERS, "torch.amp", "torch.cuda.amp", "torch.cpu.amp", "torch.utils._python_dispatch", "torch._C")
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
