"""ch07.loss_scaler: short trainings whose backward pass goes through float16, beside torch's own scaler."""

from __future__ import annotations

import ast
import math
from typing import Any

import torch

from dtlearn.grading import Case, Check, Finding, Given, rules
from dtlearn.runtime.record.record import Record

from .. import MAY_HELP
from ..own_work import find_forbidden
from . import TORCH_SCALERS
from ._scaler_mistakes import EDITS

INFINITY, MINUS, LARGE = 60_000.0, -60_000.0, 3.4e38  # of float16 and S >= 2 the first two
SKIP = "a step with a gradient that is infinite, of either sign, or NaN is skipped, and S is lowered"
# Per case: `steps`, what is in the gradients of each, {} nothing special, else {parameter: values}; the arguments;
# `ways`, how the scaler is used. Most have S in {1024, 2048}.
CASES: dict[str, dict[str, Any]] = {
    "no overflow": {"steps": [{}, {}, {}], "ways": ["watched"]},
    "growth": {
        "says": "S is multiplied by growth_factor after growth_interval good steps, and again after as many more",
        "steps": [{}] * 5,
        "growth_interval": 2,
    },
    "an infinite gradient": {"says": SKIP, "steps": [{}, {0: [INFINITY]}, {}]},
    "growth after an overflow": {
        "says": "growth_interval steps in a row make S grow: an overflow begins the count anew",
        "steps": [{}, {}, {0: [INFINITY]}, {}, {}, {}],
        "growth_interval": 3,
    },
    "minus infinity": {"says": SKIP, "steps": [{0: [MINUS]}, {}]},
    "NaN": {"says": SKIP, "steps": [{0: [math.nan]}, {}]},
    "an overflow in the last parameter": {
        "says": "an overflow in the gradient of any parameter counts, in the last one too",
        "steps": [{1: [INFINITY]}, {}],
    },
    "two parameter groups": {
        "says": "optimizer.param_groups may have several groups: all of their gradients count",
        "steps": [{}, {1: [INFINITY]}],
        "ways": ["groups"],
    },
    "a parameter without a gradient": {
        "says": "a parameter whose .grad is None is left out",
        "steps": [{}, {0: [INFINITY]}],
        "ways": ["no gradient"],
    },
    "unscaled and clipped": {
        "says": "where unscale_() was called in a step, the gradients are unscaled from then on: step() leaves them",
        "steps": [{0: [0.1] * 3, 1: [0.1] * 3}, {0: [INFINITY]}, {}],  # the first gradient is short
        "ways": ["clipped"],
    },
    "other factors": {
        "says": "S is multiplied by growth_factor and backoff_factor, whatever they are",
        "steps": [{}, {}, {0: [INFINITY]}],
        "growth_interval": 2,
        "growth_factor": 4.0,
        "backoff_factor": 0.125,
    },
    "a scale below 1": {
        "says": "S may fall below 1: it has no lower limit",
        "steps": [{0: [math.inf]}, {}],
        "init_scale": 1.0,
    },
    "a scale above 65,504": {
        "says": "S may grow beyond 65,504, the largest number of float16: it has no upper limit, and is no float16",
        "steps": [{}, {}],
        "init_scale": 131072.0,
        "growth_interval": 1,
        "dtype": torch.float32,
    },
    "large gradients": {
        "says": "finite gradients are no overflow, even if their sum or norm is too large for float32",
        "steps": [{}, {0: [1.2e38] * 3}],
        "init_scale": 2.0,
        "dtype": torch.float32,
    },
    "a gradient near the largest number": {
        "says": "finite gradients are no overflow, even if they are almost 3.403e38, the largest number of float32",
        "steps": [{}, {0: [LARGE, -LARGE]}],
        "init_scale": 1.0,
        "dtype": torch.float32,
    },
    "a float16 loss": {
        "says": "S * loss is a float32 product, also of a float16 loss",
        "steps": [{}, {}],
        "init_scale": 32768.0,
        "ways": ["float16 loss"],
    },
    "two scalers in turn": {
        "says": "a scaler is right alone, and wrong beside a second one: what belongs to a scaler must not be shared, "
        "in the module or in the class",
        "steps": [{}, {}, {0: [INFINITY]}],
        "growth_interval": 2,
        "ways": ["two"],
    },
    "no arguments": {
        "says": "without arguments S begins with 65,536, doubles after 2,000 good steps, and halves after an overflow",
        "steps": [],
        "ways": ["no arguments"],
    },
}


def inputs(case: Case) -> Given:
    """The gradients without S, by step and parameter, and the scaler's numbers."""
    p, given = case.params, []
    numbers = {"init_scale": 1024.0, "growth_interval": 9, "growth_factor": 2.0, "backoff_factor": 0.5}
    for rank in range(case.world_size):
        g, steps = case.generator(rank), []
        for special in p["steps"]:
            xs = [0.5 + torch.rand(3, generator=g).to(p.get("dtype", torch.float16)) for _ in range(2)]
            for parameter, values in special.items():
                xs[parameter][: len(values)] = torch.tensor(values)
            steps.append(xs)
        given.append({"steps": steps, **{k: p.get(k, v) for k, v in numbers.items()}, "ways": p.get("ways", [])})
    return given


def on_rank(answer: Any, steps: Any, ways: Any, **numbers: Any) -> Any:
    from contextlib import nullcontext

    from torch.utils._python_dispatch import TorchDispatchMode

    class Watch(TorchDispatchMode):
        seen = False

        def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            Watch.seen |= "_amp_" in op.name()
            return op(*args, **(kwargs or {}))

    def train(scaler: Any, steps: Any, facts: Any) -> Any:
        """Stops before step() and update(), where another scaler has its turn."""
        parameters = [torch.nn.Parameter(torch.ones_like(x, dtype=torch.float32)) for x in steps[0]]
        parameters += [torch.nn.Parameter(torch.ones(1))] if "no gradient" in ways else []
        groups: Any = [{"params": [p]} for p in parameters] if "groups" in ways else parameters
        optimizer, taken = torch.optim.SGD(groups, lr=0.25, momentum=0.5), list[int]()
        optimizer.register_step_post_hook(lambda *_: taken.append(1))
        for number, xs in enumerate(steps, 1):
            optimizer.zero_grad()
            loss = sum((p.to(x.dtype) * x).float().sum() for p, x in zip(parameters, xs, strict=False))
            scaled = scaler.scale(loss.half() if "float16 loss" in ways else loss)
            scaled.backward()
            held = [p.grad for p in parameters]
            places = [g is not None and g.data_ptr() for g in held]
            if "clipped" in ways:
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(parameters, 0.5)
            yield
            scaler.step(optimizer)
            pairs = zip(parameters, places, strict=True)
            stay = all(p.grad is None or p.grad.data_ptr() == place for p, place in pairs)
            yield
            scaler.update()
            now = [p.detach().clone() if p.isfinite().all() else "infinite or NaN" for p in parameters]
            made = {"optimizer's steps": len(taken), "get_scale()": float(scaler.get_scale()), "parameters": now}
            facts[f"step {number}"] = {"scale(loss)": scaled.detach(), **made, "gradients stay in place": stay}
            yield

    def by_default(scaler: Any) -> Any:
        """The scales of a scaler with its defaults: after an overflow, and when 2,000 good steps make it grow."""
        still, scales = torch.nn.Parameter(torch.zeros(1)), [float(scaler.get_scale())]
        optimizer, still.grad = torch.optim.SGD([still]), torch.full((1,), torch.inf)
        optimizer.step = lambda *_: None  # type: ignore[method-assign]
        for _ in range(2001):
            scaler.scale(torch.ones(()))
            scaler.step(optimizer)
            scaler.update()
            scales.append(float(scaler.get_scale()))
            still.grad = torch.zeros(1)
        grows_after = 1 + sum(scale == scales[1] for scale in scales[2:])
        return {"S": scales[0], "after an overflow": scales[1], "grows after": grows_after, "to": scales[-1]}

    if "no arguments" in ways:
        return by_default(answer())
    runs: list[Any] = [(steps, {}), (steps[::-1], {})][: 1 + ("two" in ways)]
    with Watch() if "watched" in ways else nullcontext():
        for _ in zip(*[train(answer(**numbers), own, facts) for own, facts in runs], strict=True):
            pass
    facts = {"of the other scaler": runs[1][1]} if "two" in ways else {}
    return {**runs[0][1], **facts, "made of torch.amp.GradScaler's operations": Watch.seen}


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    """Return what torch's own scaler does."""
    if "no arguments" in given[0]["ways"]:
        return [{"S": 65536.0, "after an overflow": 32768.0, "grows after": 2000, "to": 65536.0} for _ in given]
    runs = [on_rank(lambda **numbers: torch.amp.GradScaler("cpu", **numbers), **own) for own in given]
    return [{**run, "made of torch.amp.GradScaler's operations": False} for run in runs]


def without_torchs(source: str) -> Finding | None:
    """A rule on the text: torch's scaler, and the functions that it is made of, are the answer itself."""
    why = "it is torch's answer. Write your own here"
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_amp_"):  # of torch, torch.ops.aten, ...
            return Finding("DTL-RULE-NAME", f"line {node.lineno} uses {node.attr}: {why}", line=node.lineno)
    names = (*TORCH_SCALERS, "torch.amp", "torch.cuda.amp", "torch.cpu.amp", "torch.utils._python_dispatch", "torch._C")
    return find_forbidden(source, dict.fromkeys(names, why))


def why(case: Case, given: Given, record: Record) -> str:
    """The hint for a run that raised."""
    return f"{MAY_HELP}{case.says}" if "no gradient" in given[0]["ways"] else ""


def example() -> Given:
    """The steps of the table in the task."""
    steps = [[torch.ones(1).half(), torch.full((1,), 1.0 if step != 3 else INFINITY).half()] for step in range(6)]
    numbers = {"init_scale": 8.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 2}
    return [{"steps": steps, "ways": [], **numbers}]


CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    example=example(),
    why=why,
    may_change_inputs=True,
    reads=[without_torchs],
    rules=[rules.most_messages("0")],
)
