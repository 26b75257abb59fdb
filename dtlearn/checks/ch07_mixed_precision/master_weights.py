"""ch07.master_weights: the weights after every step, beside those of torch's optimizer on float32 weights, rounded."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import torch

from dtlearn.grading import Case, Check, Finding, Given, rules
from dtlearn.runtime.record.record import Record

from ._wrong_masters import MISTAKES, Masters

Weights = list[torch.Tensor]
Run = list[Weights]  # after each step

_BF16, _FP16, _FP32 = "bfloat16", "float16", "float32"
# Weights begin between `at` and twice that. Between 1 and 2 bfloat16 numbers are 1/128 apart, and float16 numbers
# between 8 and 16. `missing`: weight -> steps in which it has no gradient; `first`: the gradient of the first element
# is so many times as large; `tiny`: the first update is just below half a step of bfloat16, all others together are
# above the rest; but for the first two elements. `zero`: weight -> steps in which its gradient is all zeros. `objects`:
# so many objects share the weights, the first has every second of them, and they step in turn.
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
        "first": 4.0,
    },
    "Adam, small updates": {
        "dtypes": [_BF16, _BF16],
        "at": [1, 0.25],
        "optimizer": "Adam",
        "options": {"lr": 0.003, "betas": [0.6, 0.95]},
        "steps": 30,
    },
    "updates of a thousandth of a step": {
        "dtypes": [_BF16],
        "at": [1],
        "optimizer": "SGD",
        "options": {"lr": 2.0**-8},
        "steps": 20,
        "tiny": True,
    },
    "SGD with momentum": {
        "dtypes": [_BF16, _BF16],
        "at": [1, 2],
        "optimizer": "SGD",
        "options": {"lr": 0.02, "momentum": 0.9, "weight_decay": 0.3},
        "zero": {0: [2, 3]},
    },
    "gradients that are None": {
        "dtypes": [_BF16, _FP16, _BF16],
        "at": [1, 8, 1],
        "optimizer": "SGD",
        "options": {"lr": 0.05, "momentum": 0.5, "weight_decay": 0.3},
        "missing": {0: [2, 3, 4], 2: list(range(7))},
    },
    "a float32 weight among them": {
        "dtypes": [_BF16, _FP32, _FP16],
        "at": [1, 1, 8],
        "optimizer": "AdamW",
        "options": {"lr": 0.03, "weight_decay": 0.1},
    },
    "an optimizer of another class": {
        "dtypes": [_BF16, _FP16],
        "at": [1, 8],
        "optimizer": "its own",
        "options": {"rate": 0.02, "slower": 0.5},
    },
    "two objects, which step in turn": {
        "dtypes": [_BF16, _BF16, _FP16, _FP16],
        "at": [1, 1, 8, 8],
        "optimizer": "SGD",
        "options": {"lr": 0.05, "momentum": 0.5, "weight_decay": 0.3},
        "objects": 2,
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
        for gradient in (gradient for of_step in gradients for gradient in of_step if gradient is not None):
            gradient[0] *= params.get("first", 1.0)
        for k, steps in params.get("zero", {}).items():
            for step in steps:
                gradients[step][k] = torch.zeros(5, dtype=kinds[k])
        for step, (tiny, *_) in enumerate(gradients if params.get("tiny") else []):
            assert tiny is not None
            tiny[2:] = -255 / 256 if step == 0 else tiny[2:] * 2.0**-10
            tiny[0], tiny[1] = -2.0, -77 / 256  # what moves without masters too, and what moves with a few bits more
        job = {name: params[name] for name in ("optimizer", "options")} | {"objects": params.get("objects", 1)}
        given.append({"weights": weights, "gradients": gradients, **job})
    return given


def on_rank(answer: Any, weights: Any, gradients: Any, optimizer: Any, options: Any, objects: int) -> Any:
    class Signs(torch.optim.Optimizer):
        """Moves by the sign of a gradient, and less in every step: rate, rate * slower, ..."""

        def __init__(self, params: Any, rate: float = 0.01, slower: float = 0.75, foreach: bool = False) -> None:
            super().__init__(params, {"rate": rate, "slower": slower})

        @torch.no_grad()
        def step(self, closure: Any = None) -> None:  # type: ignore[override]
            for group in self.param_groups:
                for parameter in group["params"]:
                    if parameter.grad is not None:
                        made = self.state[parameter].get("made", 0)
                        self.state[parameter]["made"] = made + 1
                        parameter -= group["rate"] * group["slower"] ** made * parameter.grad.sign()

    def train(made_of: list[list[int]]) -> dict[str, Any]:
        """With one object for each of these lists of weights."""
        parameters = [torch.nn.Parameter(weight.clone()) for weight in weights]
        places = [parameter.data_ptr() for parameter in parameters]
        kind = getattr(torch.optim, optimizer, Signs)
        made = [answer([parameters[k] for k in own], kind, **options) for own in made_of]
        if not all(callable(getattr(one, "step", None)) for one in made):
            return {"type": type(made[0]).__name__, "run": [], "moved": []}
        run, moved = [], []
        for step, of_step in enumerate(gradients, 1):
            for parameter, gradient in zip(parameters, of_step, strict=True):
                parameter.grad = None if gradient is None else gradient.clone()
            for one in made:
                one.step()
            run.append([parameter.detach().clone() for parameter in parameters])
            moved += [[k, step] for k, parameter in enumerate(parameters) if parameter.data_ptr() != places[k]]
            if any(after.dtype != weight.dtype for after, weight in zip(run[-1], weights, strict=True)):
                break  # torch would refuse the next gradient
        return {"type": "", "run": run, "moved": moved}

    made_of = [list(range(k, len(weights), objects)) for k in range(objects)]
    alone = train(made_of[:1])["run"] if objects > 1 else []
    return train(made_of) | {"alone": [of_step[::objects] for of_step in alone]}


def trained(i: dict[str, Any], mistake: str = "", own: bool = False) -> Run:
    """The weights after each step, with one mistake in it or none; `own`: float32 weights are their own masters."""
    run: Run = on_rank(lambda weights, kind, **options: Masters(mistake, weights, kind, options, own), **i)["run"]
    return run


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
            k, step = result["moved"][0]
            text = f"weight {k} lies in other memory after step {step}: write into the parameter with "
            return Finding("DTL-VALUE-REPLACED", f"{text}copy_, as others (DDP, a tied layer) still hold it", rank)
    right, runs = [trained(i) for i in given], [result["run"] for result in got]
    if _alike(right, runs):
        return None
    first = [[of_step[:: i["objects"]] for of_step in run] for run, i in zip(right, given, strict=True)]
    if given[0]["objects"] > 1 and _alike(first, [result["alone"] for result in got]):
        text = "one object is right alone, and wrong beside a second one: what belongs to an object must not be shared"
        return Finding("DTL-VALUE-SHARED", f"{text}, in a list of the module or of the class")
    for (mistake, (code, text)), own in product(MISTAKES.items(), (False, True)):
        made = [trained(i, mistake, own) for i in given]
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
    """No weight is more than a rounding away, and hardly any that much: another order of operations shows rarely."""
    if _each(runs, others, lambda rank, step, k, a, b: None if _close(a, b) else True):
        return False
    return _share_of_neighbours(runs, others) <= 0.02


def _share_of_neighbours(runs: list[Run], others: list[Run]) -> float:
    """The share of 16-bit weights that are not equal."""
    differ: list[torch.Tensor] = []
    _each(runs, others, lambda rank, step, k, a, b: differ.append(a != b) if a.dtype != torch.float32 else None)
    return torch.cat(differ).float().mean().item()


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
    if found is None:
        share = _share_of_neighbours(right, runs)
        text = (
            f"{share:.0%} of the 16-bit weights are a neighbour of the right number: a master is a float32 number, and "
        )
        return Finding("DTL-VALUE-ROUNDING", f"{text}copy_ rounds it to the nearest")
    assert isinstance(found, Finding)
    return found


CHECK = Check(
    on_rank, inputs, None, cases=_CASES, verify=verify, may_change_inputs=True, rules=[rules.most_messages("0")]
)
