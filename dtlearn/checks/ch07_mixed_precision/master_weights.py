"""ch07.master_weights: the weights after every step, beside those of torch's optimizer on float32 weights, rounded.

The numbers are such that no master is halfway between two 16-bit numbers, nor near it: another order of the same
operations leads to the same weights.
"""

from __future__ import annotations

from typing import Any

import torch

from dtlearn.grading import Case, Check, Edit, Given, rules

BF16, FP16, FP32 = "bfloat16", "float16", "float32"
PLAIN: dict[str, Any] = {"dtypes": [BF16, FP16], "optimizer": "SGD", "options": {"lr": 2.0**-8}, "steps": 8}
MOMENTUM = {"options": {"lr": 0.05, "momentum": 0.5, "weight_decay": 0.3}, "steps": 6}
# Weights begin between 1 and 2, where bfloat16 numbers are 1/128 apart and float16 numbers 1/1024. `whole`: every
# update is a multiple of the distance; `tiny`: every update but the first is a thousandth of what it is else, and the
# first leads to just below halfway; `missing`, `zeros`: weight -> the steps in which it has no gradient, or zeros.
CASES: dict[str, dict[str, Any]] = {
    "updates that 16 bits can hold": {"whole": True, "steps": 3},
    "small updates": {"says": "small updates add up in float32 masters, and 16 bits lose them"},
    "updates of a thousandth of a step": {
        "says": "a master is a float32 number: with fewer bits the smallest updates are lost",
        "tiny": True,
        "dtypes": [BF16],
        "steps": 20,
    },
    "momentum and weight decay": {
        "says": "the optimizer is made once, with all options, and keeps its state from step to step",
        **MOMENTUM,
    },
    "a gradient of zeros": {
        "says": "a gradient of zeros is a gradient: momentum still moves the weight",
        **MOMENTUM,
        "zeros": {0: [2, 3]},
    },
    "Adam": {
        "says": "the optimizer is an optimizer_class, with the options that are given",
        "optimizer": "Adam",
        "options": {"lr": 0.003, "betas": [0.6, 0.95]},
    },
    "a gradient that is None": {
        "says": "a weight without a gradient is left out of this step, and of this step only",
        **MOMENTUM,
        "missing": {0: [0, 2, 3]},
    },
    "a float32 weight among them": {
        "says": "a float32 weight is trained like the others",
        **MOMENTUM,
        "dtypes": [BF16, FP32, FP16],
    },
    "two objects, which step in turn": {
        "says": "one object is right alone, and wrong beside a second one: what belongs to an object must not be "
        "shared, in a list of the module or of the class",
        **MOMENTUM,
        "objects": 2,
    },
}
MASTERS, MADE = "parameter.detach().float().clone()", "self.optimizer = optimizer_class(self.masters, **options)"
HANDED = "master.grad = None if parameter.grad is None else parameter.grad.float()"
STEP, COPY = "self.optimizer.step()\n", "parameter.copy_(master)"
LOST = ("the updates are rounded to 16 bits in every step, so small ones are lost: the optimizer works on the 16-bit "
        "weights, or on masters that are made from them again in every step")  # fmt: skip
FEW = "the masters have fewer bits than float32: updates that a float32 number keeps are lost"
CUT = "drop = {torch.bfloat16: 16, torch.float16: 13}.get(parameter.dtype, 0)\n                "
CUT += "parameter.copy_((master.view(torch.int32)BITS >> drop << drop).view(torch.float32))"
EDITS = (
    Edit("the model's weights never change: the masters' values are not copied back", {COPY: "pass"}),
    Edit("the weights are one step late: the masters are copied into the model before the optimizer's step, not after",
         {STEP: "pass\n", COPY: f"{COPY}\n        {STEP}"}),
    Edit("two steps of the optimizer in each step()", {STEP: f"{STEP}        {STEP}"}),
    Edit("the options are ignored: the optimizer has its default learning rate",
         {MADE: MADE.replace(", **options", "")}),
    Edit("weights lie in other memory after a step: write into the parameter with copy_, as others (DDP, a tied layer) "
         "still hold it", {COPY: "parameter.data = master.detach().to(parameter.dtype, copy=True)"}),
    Edit("a weight of 16 bits became float32: round the master into the parameter with copy_, which keeps its type",
         {COPY: "parameter.data = master"}),
    Edit(LOST, {MASTERS: "parameter.detach()", HANDED: HANDED.replace(".float()", "")}),
    Edit(LOST, {HANDED: f"master.data.copy_(parameter); {HANDED}"}),
    Edit(FEW, {COPY: f"master.copy_(master.half() if parameter.dtype == torch.bfloat16 else master); {COPY}"}),
    Edit(FEW, {COPY: f"{COPY}; master.copy_(parameter + (master - parameter).to(parameter.dtype).float())"}),
    Edit("the masters' last bits are cut off on their way into the weights: copy_ rounds to the nearest number",
         {COPY: CUT.replace("BITS", "")}),
    Edit("the weights are the masters rounded away from zero: copy_ rounds to the nearest number",
         {COPY: CUT.replace("BITS", " + (1 << drop) - 1")}),
    Edit("a gradient that is None leaves the one of an earlier step in the master, and the weight moves by it again",
         {HANDED: "master.grad = master.grad if parameter.grad is None else parameter.grad.float()"}),
    Edit("a gradient that is None became zeros: the momentum still moves the weight; the master's must be None too",
         {HANDED: "master.grad = (torch.zeros_like(parameter) if parameter.grad is None else parameter.grad).float()"}),
    Edit("a gradient of zeros is taken for None: the momentum still moves the weight, as in torch's optimizers",
         {HANDED: HANDED.replace("is None", "is None or not parameter.grad.any()")}),
    Edit("the masters' gradients are added up over the steps: each step has the gradients of this step only",
         {HANDED: "master.grad = master.grad if parameter.grad is None else parameter.grad.float() + "
                  "(0 if master.grad is None else master.grad)"}),
    Edit("the optimizer's state is lost between steps (its momentum, or Adam's moments): make the optimizer once",
         {MADE: MADE.replace("= ", "= lambda: "), STEP: "self.optimizer().step()\n"}),
    Edit("no weight is trained in a step in which one gradient is None: only that one is left out",
         {STEP: "all(master.grad is not None for master in self.masters) and self.optimizer.step()\n"}),
    Edit("the float32 weight never changes: it is trained like the others",
         {HANDED: HANDED.replace("is None", "is None or parameter.dtype == torch.float32")}),
    Edit("only the learning rate reaches the optimizer: it gets all options",
         {MADE: MADE.replace("**options", "lr=options['lr']")}),
    Edit("plain SGD, whatever optimizer_class and the options are",
         {MADE: "self.optimizer = torch.optim.SGD(self.masters, lr=options['lr'])"}),
    Edit("the optimizer is SGD, whatever optimizer_class is",
         {MADE: "options.pop('betas', None); self.optimizer = torch.optim.SGD(self.masters, **options)"}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    p, given = {**PLAIN, **case.params}, []
    for rank in range(case.world_size):
        g = case.generator(rank)
        own = drawn(p, g)
        while not is_sure(own):
            own = drawn(p, g)
        given.append(own)
    return given


def drawn(p: dict[str, Any], g: torch.Generator) -> dict[str, Any]:
    dtypes, steps = [getattr(torch, name) for name in p["dtypes"]] * p.get("objects", 1), range(p["steps"])
    weights = [(1.25 + torch.randint(64, (3,), generator=g) / 128).to(dtype) for dtype in dtypes]
    gradients: list[list[Any]] = [[(torch.rand(3, generator=g) - 1.5).to(dtype) for dtype in dtypes] for _ in steps]
    for step, of_step in enumerate(gradients):
        for k, dtype in enumerate(dtypes):
            if "whole" in p:
                of_step[k] = 2.0 * torch.randint(-2, 3, (3,), generator=g).to(dtype)
                of_step[k][0] = 2.0
            if "tiny" in p:
                of_step[k] = torch.full((3,), -255 / 256 if step == 0 else -1.6 * 2.0**-10).to(dtype)
            if step in p.get("zeros", {}).get(k, ()):
                of_step[k] = torch.zeros(3, dtype=dtype)
            if step in p.get("missing", {}).get(k, ()):
                of_step[k] = None
    names = {name: p[name] for name in ("optimizer", "options")}
    return {"weights": weights, "gradients": gradients, **names, "objects": p.get("objects", 1)}


def masters_of(own: dict[str, Any]) -> list[list[torch.Tensor]]:
    """The masters after each step: float32 weights that torch's optimizer trains."""
    masters = [weight.to(torch.float32, copy=True) for weight in own["weights"]]
    optimizer, after = getattr(torch.optim, own["optimizer"])(masters, **own["options"]), []
    for of_step in own["gradients"]:
        for master, gradient in zip(masters, of_step, strict=True):
            master.grad = None if gradient is None else gradient.float()
        optimizer.step()
        after.append([master.clone() for master in masters])
    return after


def is_sure(own: dict[str, Any]) -> bool:
    """Return whether the masters lead to the same 16-bit weights also if their last bits are others."""
    pairs = [(m, w.dtype) for of_step in masters_of(own) for m, w in zip(of_step, own["weights"], strict=True)]
    return all(torch.equal((m * (1 - 1e-6)).to(dtype), (m * (1 + 1e-6)).to(dtype))
               for m, dtype in pairs if dtype != torch.float32)  # fmt: skip


def on_rank(answer: Any, weights: Any, gradients: Any, optimizer: Any, options: Any, objects: Any) -> Any:
    parameters = [torch.nn.Parameter(weight.clone()) for weight in weights]
    places = [parameter.data_ptr() for parameter in parameters]
    after: list[Any] = [None] * len(gradients)
    kind = getattr(torch.optim, optimizer)
    made = [answer(parameters[k::objects], kind, **options) for k in range(objects)]
    for step, of_step in enumerate(gradients):
        for parameter, gradient in zip(parameters, of_step, strict=True):
            parameter.grad = None if gradient is None else gradient.clone()
        for one in made:
            one.step()
        after[step] = [parameter.detach().clone() for parameter in parameters]
        if types := [str(p.dtype) for p, weight in zip(parameters, weights, strict=True) if p.dtype != weight.dtype]:
            break  # torch would refuse the next gradient
    facts = {f"weights after step {step}": weights for step, weights in enumerate(after, 1)}
    stay = [parameter.data_ptr() for parameter in parameters] == places
    return {"other types": types, **facts, "weights stay in their memory": stay}


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    results = []
    for own in given:
        dtypes = [weight.dtype for weight in own["weights"]]
        after = [[m.to(dtype) for m, dtype in zip(of_step, dtypes, strict=True)] for of_step in masters_of(own)]
        facts = {f"weights after step {step}": of_step for step, of_step in enumerate(after, 1)}
        results.append({"other types": [], **facts, "weights stay in their memory": True})
    return results


ONE = {"weights": [torch.ones(1).bfloat16()], "gradients": [[-torch.ones(1).bfloat16()]] * 5, "objects": 1}
CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    example=[{**ONE, "optimizer": "SGD", "options": {"lr": 0.001}}],
    may_change_inputs=True,
    rules=[rules.most_messages("0")],
)
