"""ch07.master_weights: the weights after every step, beside those of torch's optimizer on float32 weights, rounded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dtlearn.grading import Case, Check, Finding, Given, rules
from dtlearn.runtime.record.record import Record

Weights = list[torch.Tensor]
Run = list[Weights]  # after each step

_BF16, _FP16, _FP32 = "bfloat16", "float16", "float32"
# Weights begin between `at` and twice that. Between 1 and 2 bfloat16 numbers are 1/128 apart, and float16 numbers
# between 8 and 16. `missing`: weight -> steps in which it has no gradient.
_CASES: dict[str, dict[str, Any]] = {
    "SGD, large updates": {
        "dtypes": [_BF16, _FP16],
        "at": [1, 8],
        "optimizer": "SGD",
        "options": {"lr": 0.05},
        "steps": 20,
    },
    "SGD, small updates": {
        "dtypes": [_BF16, _FP16],
        "at": [1, 8],
        "optimizer": "SGD",
        "options": {"lr": 0.0024},
        "steps": 30,
    },
    "Adam, small updates": {"dtypes": [_BF16], "at": [1], "optimizer": "Adam", "options": {"lr": 0.003}, "steps": 30},
    "SGD with momentum": {
        "dtypes": [_BF16, _BF16],
        "at": [1, 2],
        "optimizer": "SGD",
        "options": {"lr": 0.02, "momentum": 0.9},
    },
    "gradients that are None": {
        "dtypes": [_BF16, _FP16, _BF16],
        "at": [1, 8, 1],
        "optimizer": "SGD",
        "options": {"lr": 0.05, "momentum": 0.5},
        "missing": {0: [2, 3, 4], 2: list(range(8))},
    },
    "a float32 weight among them": {
        "dtypes": [_BF16, _FP32, _FP16],
        "at": [1, 1, 8],
        "optimizer": "AdamW",
        "options": {"lr": 0.03, "weight_decay": 0.1},
    },
}


def inputs(case: Case) -> Given:
    g, params, given = case.generator(), case.params, []
    missing = params.get("missing", {})
    for _ in range(case.world_size):
        kinds = [getattr(torch, name) for name in params["dtypes"]]
        weights = [
            (at * (1 + torch.rand(5, generator=g))).to(kind) for at, kind in zip(params["at"], kinds, strict=True)
        ]
        gradients = [
            [
                None if step in missing.get(k, ()) else (torch.rand(5, generator=g) - 1.5).to(kind)
                for k, kind in enumerate(kinds)
            ]
            for step in range(params.get("steps", 8))
        ]
        job = {"optimizer": params["optimizer"], "options": params["options"]}
        given.append({"weights": weights, "gradients": gradients, **job})
    return given


def on_rank(answer: Any, weights: Any, gradients: Any, optimizer: Any, options: Any) -> Any:
    parameters = [torch.nn.Parameter(weight.clone()) for weight in weights]
    places = [parameter.data_ptr() for parameter in parameters]
    made = answer(list(parameters), getattr(torch.optim, optimizer), **options)
    if not callable(getattr(made, "step", None)):
        return {"type": type(made).__name__, "run": [], "moved": []}
    run = []
    for of_step in gradients:
        for parameter, gradient in zip(parameters, of_step, strict=True):
            parameter.grad = None if gradient is None else gradient.clone()
        made.step()
        run.append([parameter.detach().clone() for parameter in parameters])
        if any(after.dtype != weight.dtype for after, weight in zip(run[-1], weights, strict=True)):
            break  # torch would refuse the next gradient
    moved = [k for k, parameter in enumerate(parameters) if parameter.data_ptr() != places[k]]
    return {"type": "", "run": run, "moved": moved}


def trained(i: dict[str, Any], mistake: str = "") -> Run:
    """The weights after each step, with one mistake in it or none."""
    weights: Weights = [weight.clone() for weight in i["weights"]]
    masters = [weight.clone() if mistake == "no masters" else weight.float() for weight in weights]
    optimizer_class, options = getattr(torch.optim, i["optimizer"]), dict(i["options"])
    if mistake == "options":
        options = {"lr": 0.001}
    if mistake == "plain SGD":
        optimizer_class, options = torch.optim.SGD, {"lr": options["lr"]}
    optimizer, run = optimizer_class(masters, **options), []
    for gradients in i["gradients"]:
        if mistake == "new optimizer":
            optimizer = optimizer_class(masters, **options)
        before = [master.clone() for master in masters]
        for master, weight, gradient in zip(masters, weights, gradients, strict=True):
            if mistake == "new masters":
                master.copy_(weight)
            _hand_over(master, gradient, mistake)
            if mistake == "float32 left out" and weight.dtype == torch.float32:
                master.grad = None
        for _ in range(2 if mistake == "two steps" else 1):
            optimizer.step()
        for weight, master in zip(weights, before if mistake == "late" else masters, strict=True):
            if mistake != "not copied":
                weight.copy_(master)
        run.append([weight.clone() for weight in weights])
    return run


def _hand_over(master: torch.Tensor, gradient: torch.Tensor | None, mistake: str) -> None:
    if gradient is not None:
        old = master.grad if mistake == "added up" else None
        master.grad = gradient.to(master.dtype) + (0 if old is None else old)
    elif mistake == "zeros":
        master.grad = torch.zeros_like(master)
    elif mistake not in ("old gradient", "added up"):
        master.grad = None


_LOST = "the updates are rounded to 16 bits in every step, so small ones are lost: the optimizer works on the 16-bit "
_NAMES: dict[str, tuple[str, str]] = {
    "not copied": ("DTL-VALUE-NOT-COPIED", "the model's weights never change: the masters' values are not copied back"),
    "late": (
        "DTL-VALUE-LATE",
        "the weights are one step late: the masters are copied into the model before the optimizer's step, not after",
    ),
    "no masters": ("DTL-VALUE-STALLED", f"{_LOST}weights, or on masters that are made from them again in every step"),
    "new masters": ("DTL-VALUE-STALLED", f"{_LOST}weights, or on masters that are made from them again in every step"),
    "old gradient": (
        "DTL-VALUE-OLD",
        "a gradient that is None leaves the one of an earlier step in the master, and the weight moves by it again",
    ),
    "zeros": (
        "DTL-VALUE-ZEROED",
        "a gradient that is None became zeros: the momentum still moves the weight; the master's must be None too",
    ),
    "added up": (
        "DTL-VALUE-ADDED-UP",
        "the masters' gradients are added up over the steps: each step has the gradients of this step only",
    ),
    "new optimizer": (
        "DTL-VALUE-STATE",
        "the optimizer's state is lost between steps (its momentum, or Adam's moments): make the optimizer once",
    ),
    "float32 left out": ("DTL-VALUE-LEFT-OUT", "the float32 weight never changes: it is trained like the others"),
    "two steps": ("DTL-VALUE-TWICE", "two steps of the optimizer in each step()"),
    "options": ("DTL-VALUE-OPTIONS", "the options are ignored: the optimizer has its default learning rate"),
    "plain SGD": ("DTL-VALUE-OPTIONS", "plain SGD, whatever optimizer_class and the options are"),
}


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    """The parameters themselves, then their values after each step."""
    for rank, (result, i) in enumerate(zip(got, given, strict=True)):
        if result["type"]:
            text = f"master_weights returned an object of type {result['type']}; it should have a method step()"
            return Finding("DTL-VALUE-TYPE", text, rank)
        for k, (last, first) in enumerate(zip(result["run"][-1], i["weights"], strict=True)):
            if last.dtype != first.dtype:
                text = f"weight {k} was {first.dtype} and is {last.dtype} after the steps: round the master into the "
                return Finding("DTL-VALUE-DTYPE", f"{text}parameter with copy_, which keeps its type", rank)
        if result["moved"]:
            text = f"weight {result['moved'][0]} lies in other memory after the steps: write into the parameter with "
            return Finding("DTL-VALUE-REPLACED", f"{text}copy_, as others (DDP, a tied layer) still hold it", rank)
    right, runs = [trained(i) for i in given], [result["run"] for result in got]
    if _alike(right, runs):
        return None
    for mistake, (code, text) in _NAMES.items():
        made = [trained(i, mistake) for i in given]
        if not _alike(made, right) and _alike(made, runs):
            return Finding(code, text)
    return _first_difference(right, runs)


def _each(runs: list[Run], others: list[Run], see: Callable[..., Any]) -> Any:
    """The first result of `see` that is something, over ranks, steps and weights."""
    for rank, (run, other) in enumerate(zip(runs, others, strict=True)):
        for step, (weights, other_weights) in enumerate(zip(run, other, strict=True)):
            for k, (a, b) in enumerate(zip(weights, other_weights, strict=True)):
                if (made := see(rank, step, k, a, b)) is not None:
                    return made
    return None


def _close(a: torch.Tensor, b: torch.Tensor) -> bool:
    """But for one rounding: the order of operations in an optimizer is not given."""
    rtol = 1e-5 if a.dtype == torch.float32 else torch.finfo(a.dtype).eps
    return a.shape == b.shape and a.dtype == b.dtype and torch.allclose(a.float(), b.float(), rtol=rtol, atol=1e-6)


def _alike(runs: list[Run], others: list[Run]) -> bool:
    return _each(runs, others, lambda rank, step, k, a, b: None if _close(a, b) else True) is None


def _first_difference(right: list[Run], runs: list[Run]) -> Finding:
    def see(rank: int, step: int, k: int, a: torch.Tensor, b: torch.Tensor) -> Finding | None:
        if _close(a, b):
            return None
        if a.shape != b.shape:
            text = f"weight {k} has the shape {tuple(b.shape)} after step {step + 1}; it was {tuple(a.shape)}"
            return Finding("DTL-VALUE-SHAPE", text, rank)
        at = int((a.float() - b.float()).abs().nan_to_num(torch.inf).argmax())
        text = f"weight {k} ({str(a.dtype).removeprefix('torch.')}) should have {a[at].item():.6g} at {at} after step "
        return Finding("DTL-VALUE", f"{text}{step + 1}; it has {b[at].item():.6g}", rank)

    found = _each(right, runs, see)
    assert isinstance(found, Finding)
    return found


CHECK = Check(
    on_rank, inputs, None, cases=_CASES, verify=verify, may_change_inputs=True, rules=[rules.most_messages("0")]
)
