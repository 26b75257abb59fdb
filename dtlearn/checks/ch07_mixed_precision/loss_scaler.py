"""ch07.loss_scaler: short trainings whose backward pass goes through float16, beside torch's own scaler."""

from __future__ import annotations

import ast
import math
from typing import Any

import torch

from dtlearn.grading import Case, Check, Edit, Finding, Given, rules
from dtlearn.runtime.record.record import Record

from .. import MAY_HELP
from ..own_work import find_forbidden
from . import TORCH_SCALERS

INFINITY, MINUS, LARGE = 60_000.0, -60_000.0, 3.4e38  # of float16 and S >= 2 the first two
SKIP = "a step with a gradient that is infinite, of either sign, or NaN is skipped, and S is lowered"
# Of each case: `steps`, what is in the gradients of each, {} nothing special, else {parameter: values}; the arguments;
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
SCALE, DIVIDE, LOOK = "loss.float() * self.current", "parameter.grad /= self.current", "parameter.grad.isfinite().all()"
UNSCALE, STEP = "if not self.unscaled:\n            self.unscale_(optimizer)", "            optimizer.step()\n"
TAKEN = f"if not self.overflow:\n{STEP}"
LOWER, RAISE = "self.current *= self.backoff_factor", "self.current *= self.growth_factor"
LOWERED, RAISED = f"{LOWER}\n            self.good_steps = 0", f"{RAISE}\n                self.good_steps = 0"
DUE, FORGET = "if self.good_steps == self.growth_interval:", "self.unscaled = self.overflow = False"
COUNT = f"        else:\n            self.good_steps += 1\n            {DUE}\n                {RAISED}"
EDITS = (
    Edit("the operations that torch.amp.GradScaler is made of did the work: it is torch's answer, write your own here",
         {"return Scaler(init_scale": 'return getattr(torch, "am" + "p").GradScaler("cpu", init_scale'}),
    Edit("scale() returns the loss as it was: it is S times the loss", {SCALE: "loss.float()"}),
    Edit("the optimizer steps with gradients that are still S times too large: divide them by S before",
         {DIVIDE: "pass"}),
    Edit("the gradients are multiplied by S again: divide them", {DIVIDE: "parameter.grad *= self.current"}),
    Edit("unscale_() leaves the gradients as they are, and only step() divides them: what is clipped is still scaled",
         {"optimizer: torch.optim.Optimizer) -> None:\n        \"\"\"Divide":
          "optimizer: torch.optim.Optimizer, now: bool = False) -> None:\n        \"\"\"Divide",
          "in optimizer.param_groups": "in optimizer.param_groups if now else ()",
          UNSCALE: "self.unscale_(optimizer, True)"}),
    Edit("the gradients are divided by S in the first step only: update() must forget that unscale_() was called",
         {FORGET: "self.overflow = False"}),
    Edit("step() divides the gradients by S again, although unscale_() was called in this step",
         {UNSCALE: "self.unscale_(optimizer)"}),
    Edit("the gradients lie in other memory afterwards: divide them in place (/= or div_), as others may hold them "
         "(DDP's buckets)", {DIVIDE: "parameter.grad = parameter.grad / self.current"}),
    Edit("the optimizer steps with gradients that are infinite or NaN, and so are the weights from then on",
         {TAKEN: f"if True:\n{STEP}"}),
    Edit("after an overflow the optimizer steps with zeros: momentum still moves the weights. Do not call it",
         {TAKEN: f"if self.overflow:\n            optimizer.zero_grad(set_to_none=False)\n        if True:\n{STEP}"}),
    Edit("a gradient with NaN is not noticed: the step must be skipped, as for infinity",
         {f"not {LOOK}": "parameter.grad.isinf().any()"}),
    Edit("an infinite gradient is not noticed: the step must be skipped, as for NaN",
         {f"not {LOOK}": "parameter.grad.isnan().any()"}),
    Edit("a gradient of minus infinity is not noticed: the step must be skipped",
         {f"not {LOOK}": "(parameter.grad.isnan() | parameter.grad.isposinf()).any()"}),
    Edit("only the first parameter's gradient decides: an overflow in any gradient skips the step",
         {f"self.overflow |= not {LOOK}":
          f"self.overflow |= parameter is optimizer.param_groups[0]['params'][0] and not {LOOK}"}),
    Edit("only the last parameter's gradient decides: an overflow in any gradient skips the step",
         {f"self.overflow |= not {LOOK}": f"self.overflow = not {LOOK}"}),
    Edit("only the first parameter group is divided by S and looked at: optimizer.param_groups may have several",
         {"in optimizer.param_groups": "in optimizer.param_groups[:1]"}),
    Edit("a step is skipped in which every gradient is finite: the norm of large values is too large for float32, and "
         "no size is an overflow; look at each value", {LOOK: "parameter.grad.norm().isfinite()"}),
    Edit("a step is skipped in which every gradient is finite: the sum of large values is too large for float32, and "
         "no size is an overflow; look at each value", {LOOK: "parameter.grad.sum().isfinite()"}),
    Edit("a step is skipped in which every gradient is finite: no size is an overflow, not even 3.4e38, which is close "
         "to the largest float32 number; ask of each value whether it is finite",
         {LOOK: "(parameter.grad.abs() < 3e38).all()"}),
    Edit("after the first overflow every step is skipped: update() must forget the overflow",
         {FORGET: "self.unscaled = False"}),
    Edit("the scale is not lowered below 1: it has no lower limit",
         {LOWER: "self.current = max(1.0, self.current * self.backoff_factor)"}),
    Edit("the scale does not grow above 65,536: it has no upper limit",
         {RAISE: "self.current = max(self.current, min(65536.0, self.current * self.growth_factor))"}),
    Edit("the scale is not lowered after an overflow", {LOWER: "pass"}),
    Edit("the scale is lowered twice after an overflow, in step() and in update()",
         {TAKEN: f"{TAKEN}        else:\n            self.current *= self.backoff_factor\n"}),
    Edit("a step is counted twice: step() does what update() does as well", {STEP: f"{STEP}        self.update()\n"}),
    Edit("after an overflow the scale is divided by growth_factor: multiply it by backoff_factor",
         {LOWER: "self.current /= self.growth_factor"}),
    Edit("the scale grows by 1 / backoff_factor: multiply it by growth_factor",
         {RAISE: "self.current /= self.backoff_factor"}),
    Edit("the scale never grows", {RAISE: "pass"}),
    Edit("the count of good steps is not set to 0 after an overflow: growth_interval steps in a row are asked for",
         {LOWERED: LOWER}),
    Edit("the skipped step itself is counted as a good one: after it the count is 0",
         {LOWERED: f"{LOWER}\n            self.good_steps = 1"}),
    Edit("the scale grows after every growth_interval steps, whether there was an overflow among them or not",
         {LOWERED: LOWER, COUNT: COUNT.replace("        else:", "        if True:")}),
    Edit("once the scale has grown it grows in every step: the count of good steps must begin anew",
         {DUE: DUE.replace("==", ">="), RAISED: RAISE}),
    Edit("the scale grows once, and not after the next growth_interval good steps: does the count begin anew?",
         {RAISED: RAISE}),
    Edit("the scale grows one step too late: after growth_interval good steps, not one more",
         {DUE: DUE.replace("==", ">")}),
    Edit("the scale grows one step too early at first: no good step has been made when the count begins",
         {"self.good_steps = 0\n        self.unscaled = F": "self.good_steps = 1\n        self.unscaled = F",
          DUE: DUE.replace("==", ">=")}),
    Edit("the scale grows one step too early: after growth_interval good steps",
         {DUE: "if self.good_steps >= self.growth_interval - 1:"}),
    Edit("the scale is doubled and halved, whatever the two factors are",
         {"= growth_factor\n": "= 2.0\n", "= backoff_factor\n": "= 0.5\n"}),
    Edit("the scale grows after an overflow: the two factors are exchanged",
         {"= growth_factor\n": "= backoff_factor\n", "= backoff_factor\n        self.growth_i":
          "= growth_factor\n        self.growth_i"}),
    Edit("scale() returns a float16 number where the loss is float16: the product with S may be infinite there; "
         "convert the loss first (.float())", {SCALE: "loss * self.current"}),
    Edit("the product of S and a float16 loss is made in float16, and only then converted: 4 times 32,768 is infinite "
         "there; convert the loss first (.float())", {SCALE: "(loss * self.current).float()"}),
    Edit("S becomes a float16 number before the product, and is infinite there above 65,504: convert the loss, not S",
         {SCALE: "loss.float() * torch.tensor(self.current).half()"}),
    Edit("without a growth_interval the scale grows after 1,000 good steps: its default is 2,000",
         {"growth_interval: int = 2000": "growth_interval: int = 1000"}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    """By step and parameter what its gradient is, without S."""
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
        """An overflow, then 2,000 good steps, in which nothing is done but to count."""
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
    """What torch's own scaler does."""
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
    """Of a run that raised."""
    return f"{MAY_HELP}{case.says}" if "no gradient" in given[0]["ways"] else ""


def example() -> Given:
    """The table of the task."""
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
