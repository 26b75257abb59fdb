"""ch06.waiting_forward: layers that note when they compute, and works that note when somebody waits for them.

The works wrap real all-reduces. They write the means into `p.grad` when they are waited for, and not before: so an
answer that does not wait is wrong on every machine, however fast the ranks are.
"""

from __future__ import annotations

from typing import Any

import torch

from dtlearn.grading import Case, Check, Edit, Given, rules
from dtlearn.runtime.record.record import Record

from ..sent import no_stores
from . import MAY_HELP

# Per case: `uses`, the layers that a forward pass runs, in this order; `frozen`, parameters that are not trained,
# by layer and place; `evaluates`, whether an evaluation comes before each forward pass; `last`, whether the function
# for the last steps is called, in place of one more forward pass.
CASES: dict[str, dict[str, Any]] = {
    "one layer": {"uses": [0], "lr": 0.5},
    "three layers": {
        "says": "a layer waits for its own gradient and for no other, and just before it computes",
        "uses": [0, 1, 2],
    },
    "a layer that is used twice": {
        "says": "a layer that runs twice in a forward pass makes its step before the first run, and no second one",
        "uses": [0, 1, 0],
    },
    "a frozen layer": {
        "says": "a frozen layer has no entry in works: it waits for nothing, and those after it go on as before",
        "uses": [0, 1, 2],
        "frozen": [[1, 0], [1, 1]],
    },
    "a frozen bias": {
        "says": "a frozen parameter has no gradient, p.grad is None: the others of its layer are trained",
        "uses": [0, 1],
        "frozen": [[0, 1]],
    },
    "a frozen weight": {
        "says": "each parameter of a layer may be the frozen one, its first one too: the others are trained",
        "uses": [0, 1],
        "frozen": [[0, 0]],
    },
    "an evaluation": {
        "says": "a forward pass that trains nothing, with eval() and no_grad(), waits and steps as every other one",
        "uses": [0, 1],
        "evaluates": True,
    },
    "the last step": {
        "says": "the function that is returned makes the steps that are still to be made, in all layers, once",
        "uses": [0, 1, 0],
        "last": True,
    },
}
WAIT, STEP, CLEAR = "works.pop(i).wait()", "p -= lr * p.grad\n", "p.grad = None"
HOOK, OWN, IF = (
    "layer.register_forward_pre_hook(lambda *_, i=i: step(i))",
    "in layers[i].parameters()",
    "if i in works:",
)
LAST = "for i in range(len(layers)):\n            step(i)"
EDITS = (
    Edit("a layer steps with this rank's own gradients: works[i].wait() has to be called before",
         {WAIT: "works.pop(i)"}),
    Edit("wait() is called after the step, and then p.grad still holds the mean: wait, step, clear",
         {WAIT: "work = works.pop(i)", CLEAR: "p.grad = None\n            work.wait()"}),
    Edit("the step is made after the layer has computed: it comes before, in a forward pre-hook",
         {HOOK: HOOK.replace("_pre_hook", "_hook"), STEP: "p.data -= lr * p.grad\n"}),
    Edit("the first layer that runs waits for all gradients: each layer waits for its own only",
         {HOOK: "layer.register_forward_pre_hook(lambda *_: last_steps())"}),
    Edit("each layer waits for the gradient of the one after it: its own parameters are used now",
         {HOOK: HOOK.replace("step(i)", "step((i + 1) % len(layers))"), STEP: "p.data -= lr * p.grad\n"}),
    Edit("every hook is one of the last layer: a function reads the variable of a loop when it runs, so bind it, as in "
         "`lambda *_, i=i: ...`", {HOOK: HOOK.replace(", i=i", "")}),
    Edit("the parameters of all layers step when the gradient of one is there: each layer makes its own step",
         {OWN: "in (p for one in layers for p in one.parameters())"}),
    Edit("the hooks act in the first forward passes only: they stay, so neither remove them nor count",
         {HOOK: HOOK.replace("i=i: step(i)", "i=i, left=[1, 1]: step(i) if left and left.pop() else None")}),
    Edit("the parameters go up the gradient: p becomes p - lr * p.grad", {STEP: "p += lr * p.grad\n"}),
    Edit("the step is made without the learning rate", {STEP: "p -= p.grad\n"}),
    Edit("the mean is divided by the number of ranks once more: after wait() p.grad is the mean",
         {STEP: "p -= lr * p.grad / dist.get_world_size()\n"}),
    Edit("the parameters stay as they were: change them in place, p - lr * p.grad is a new tensor",
         {STEP: "p = p - lr * p.grad\n", CLEAR: "list(layers[i].parameters())[n].grad = None",
          f"for p {OWN}": "for n, p in enumerate(layers[i].parameters())"}),
    Edit("p.grad still has the gradient of the step before, to which the next backward pass adds: set it to None",
         {CLEAR: "pass"}),
    Edit("a layer in which a parameter is frozen makes no step: its other parameters are trained",
         {IF: "if i in works and all(p.requires_grad for p in layers[i].parameters()):"}),
    Edit("a layer whose first parameter is frozen makes no step: its other parameters are trained",
         {IF: "if i in works and next(layers[i].parameters()).requires_grad:"}),
    Edit("hooks do nothing in an evaluation: a layer that computes there needs its new parameters, too",
         {IF: "if i in works and torch.is_grad_enabled():"}),
    Edit("no layer waits or steps: register a hook for each layer, and read `works` when the hook runs",
         {HOOK: "pass"}),
    Edit("the parameters' new values are in new memory: change them in place, as `p -= ...` does",
         {STEP: "p.data = p.data - lr * p.grad\n"}),
    Edit("p.grad is there after a step, full of zeros: set it to None", {CLEAR: "p.grad.zero_()"}),
    Edit("the function that is returned makes the steps, and leaves p.grad: it is None after each step",
         {LAST: "for i in sorted(works):\n            works.pop(i).wait()\n            for p in layers[i].parameters():"
                "\n                p.data -= 0 if p.grad is None else lr * p.grad"}),
    Edit("what is returned is no function: return it by its name, without a call",
         {"    return last_steps\n": "    return last_steps()\n"}),
    Edit("the function that is returned makes no step: it does what the hooks do, for every layer whose step is due",
         {LAST: "pass"}),
    Edit("the function that is returned waits, and makes no step",
         {LAST: "for work in works.values():\n            work.wait()"}),
    Edit("the function that is returned makes the step of one layer only", {LAST: "step(0)"}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    g, p = case.generator(), case.params
    layers = [[torch.randn(2, 2, generator=g), torch.randn(2, generator=g)] for _ in range(max(p["uses"]) + 1)]
    same = {"layers": layers, "uses": p["uses"], "frozen": p.get("frozen", []), "evaluates": p.get("evaluates", False)}
    same |= {"last": p.get("last", False), "lr": p.get("lr", 0.25)}
    return [{**same, "x": torch.randn(2, 3, 2, generator=g)} for _ in range(case.world_size)]


def on_rank(answer: Any, layers: Any, uses: Any, frozen: Any, evaluates: bool, last: bool, lr: float, x: Any) -> Any:
    happened: list[str] = []
    facts: Any = {}

    class Layer(torch.nn.Module):
        def __init__(self, number: int) -> None:
            super().__init__()
            self.number, self.own = number, torch.nn.ParameterList([p.clone() for p in layers[number]])
            for place, p in enumerate(self.own):
                p.requires_grad_([number, place] not in frozen)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            happened.append(f"layer {self.number} computes")
            return torch.tanh(x @ self.own[0] + self.own[1])

    class Started:
        def __init__(self, layer: Layer) -> None:
            self.number, self.over = layer.number, False
            self.pairs = [(p, p.grad) for p in layer.parameters() if p.grad is not None]
            self.flat = torch.cat([own.flatten() for _, own in self.pairs]) / dist.get_world_size()  # type: ignore[name-defined] # noqa: F821
            self.work = dist.all_reduce(self.flat, async_op=True)  # type: ignore[name-defined] # noqa: F821

        def wait(self) -> None:
            self.work.wait()
            if not self.over:
                happened.append(f"wait for works[{self.number}]")
                means = self.flat.split([p.numel() for p, _ in self.pairs])
                for (p, own), mean in zip(self.pairs, means, strict=True):
                    p.grad = own.copy_(mean.view_as(p))
            self.over = True

        def is_completed(self) -> bool:
            return self.over

    def passes(name: str, rows: torch.Tensor) -> torch.Tensor:
        for number in uses:
            rows = modules[number].train(not name.startswith("evaluation"))(rows)
        facts[name] = happened[:]
        happened.clear()
        return rows

    def is_clear() -> bool:
        return all(p.grad is None for m in modules for p in m.own)

    modules = [Layer(number) for number in range(len(layers))]
    works: Any = {}
    started: Any = []
    memory = [[p.detach() for p in m.own] for m in modules]
    last_steps = answer(modules, works, lr)
    for step, rows in enumerate([*x] if last else [*x, x[0]]):
        if evaluates:
            with torch.no_grad():
                passes(f"evaluation {step + 1}", rows)
        rows = passes(f"forward pass {step + 1}", rows)
        facts[f"p.grad is None after forward pass {step + 1}"] = is_clear()
        if step < len(x):
            rows.square().sum().backward()
            trained = [m for m in reversed(modules) if any(p.requires_grad for p in m.parameters())]
            started += [Started(m) for m in trained]
            works.update({work.number: work for work in started[-len(trained) :]})
    if last:
        facts["a function is returned"] = callable(last_steps)
        for _ in range(2 if callable(last_steps) else 0):
            last_steps()
        facts["last steps"] = sorted(happened)
        facts["p.grad is None after the last steps"] = is_clear()
    for one in started:  # nothing may be left on its way
        one.work.wait()
    return {**facts, "parameters": [[p.detach() for p in m.own] for m in modules], "memory of the parameters": memory}


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    """One process with the data of all ranks, in float64."""
    own, facts = given[0], dict[str, Any]()
    parameters = [[p.double() for p in layer] for layer in own["layers"]]
    trained = [n for n in range(len(parameters)) if [n, 0] not in own["frozen"] or [n, 1] not in own["frozen"]]
    for step in range(2 if own["last"] else 3):
        due = set(trained if step else [])
        for name in ["evaluation"] * own["evaluates"] + ["forward pass"]:
            happened = facts[f"{name} {step + 1}"] = list[str]()
            for n in own["uses"]:
                happened += [f"wait for works[{n}]"] * (n in due) + [f"layer {n} computes"]
                due -= {n}
        facts[f"p.grad is None after forward pass {step + 1}"] = True
    if own["last"]:
        facts["a function is returned"] = True
        facts["last steps"] = [f"wait for works[{n}]" for n in trained]
        facts["p.grad is None after the last steps"] = True
    for step in range(2):
        leaves = [[p.detach().requires_grad_([n, k] not in own["frozen"]) for k, p in enumerate(layer)]
                  for n, layer in enumerate(parameters)]  # fmt: skip
        for one in given:
            rows = one["x"][step].double()
            for n in own["uses"]:
                rows = torch.tanh(rows @ leaves[n][0] + leaves[n][1])
            (rows.square().sum() / case.world_size).backward()
        parameters = [[p if p.grad is None else p - own["lr"] * p.grad for p in layer] for layer in leaves]
    values = [[p.detach().float() for p in layer] for layer in parameters]
    return [{**facts, "parameters": values, "memory of the parameters": values}] * case.world_size


def why(case: Case, given: Given, record: Record) -> str:
    """The hint for a run that raised: what is new in its case."""
    return f"{MAY_HELP}{case.says}" if case.says else ""


LAYER = [torch.tensor([[0.5, 0.0], [0.0, 1.0]]), torch.tensor([0.0, 0.5])]
OF_FORWARD = {"uses": [0, 1], "frozen": [], "evaluates": False, "last": True}
EXAMPLE = {"layers": [LAYER, LAYER], **OF_FORWARD, "lr": 0.5, "x": torch.ones(2, 1, 2)}
CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    example=[EXAMPLE] * 2,
    why=why,
    rules=[rules.most_messages("0")],
    reads=[no_stores],
    may_change_inputs=True,
    rtol=2e-4,
    atol=2e-5,
)
