"""ch06.bug_hunt: a scheduler by priority, each of its three bugs in a case that shows this one only."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import torch
from torch.nn.functional import mse_loss

from dtlearn.grading import Case, Check, Edit, Finding, Given, Stress, rules
from dtlearn.runtime.record.record import Record

from ..sent import no_silent_rank, no_stores
from . import MAY_HELP

# Per case: `part`, elements; `widths`, of the input and of each layer, if a layer does not have 6 elements;
# `order`, in which forward calls the layers on odd ranks, if not as on even ones; without it the layers are a chain;
# `look`, at which losses.
CASES: dict[str, dict[str, Any]] = {
    "a part for each layer": {"part": 6},
    "several parts for each layer": {
        "says": "a layer makes one step for each batch, when all parts of its gradient are there",
        "part": 4,
        "widths": [2, 3, 2, 2],
    },
    "branches in another order on each rank": {
        "says": "all ranks start the all-reduces of the layers in one order, in whatever order their own gradients "
        "become ready: calls are matched by order alone",
        "part": 6,
        "order": [1, 0, 2],
    },
    "an evaluation after each step": {
        "says": "a forward pass that trains nothing also has to use the parameters after the last step",
        "part": 6,
        "look": "both",
    },
}
# Parts of the solution; `as_found`, which stands in the same file, has each of them otherwise.
SENDS = """        for i in range(len(layers)):
            flat = parameters_to_vector([p.grad for p in layers[i].parameters()]) / dist.get_world_size()
"""
LOOP = """        for work, piece in parts.pop(i):
            work.wait()
            flat[start : start + len(piece)] = piece
            start += len(piece)
        for p, gradient in zip(own, flat.split([p.numel() for p in own]), strict=True):
            p.grad = gradient.view_as(p)
        optimizers[i].step()
        optimizers[i].zero_grad()
"""
TRAIN = """    for i, layer in enumerate(layers):
        layer.register_forward_pre_hook(lambda *_, i=i: before_forward(i))
    trained, evaluated = [], []
    for x, y in batches:
        loss = mse_loss(forward(x), y)
        loss.backward()
        send()
        trained.append(loss.item())
        with torch.no_grad():
            evaluated.append(mse_loss(forward(held_out[0]), held_out[1]).item())
"""


def of(text: str, changes: dict[str, str]) -> dict[str, str]:
    return {text: Edit(text, changes).applied_to(text)}


WRITE = "p.grad = gradient.view_as(p)\n"
EACH = of(LOOP, {
    "        for p, gradient": "            for p, gradient",
    WRITE: f"    {WRITE}",
    "        optimizers[i].step()": "            optimizers[i].step()",
})  # fmt: skip
BY_READINESS = {
    **of(SENDS, {"range(len(layers))": "sorted(priority, key=priority.get, reverse=True)"}),
    **of(TRAIN, {
        "    for i, layer in enumerate(layers):\n": "    priority = {}\n    for i, layer in enumerate(layers):\n"
        "        for p in layer.parameters():\n            p.register_post_accumulate_grad_hook("
        "lambda _, i=i: (priority.setdefault(i, len(priority)), None)[1])\n",
        "        send()\n": "        send()\n        priority.clear()\n",
    }),
}  # fmt: skip
UNUSED = {"if i not in parts:": "if i not in parts or not torch.is_grad_enabled():"}
END = "    return trained, evaluated\n    # END"
LAST = f"    for i in range(len(layers)):  # the last step\n        before_forward(i)\n{END}"
EDITS = (
    Edit("a layer makes a step for each part of its gradient, with what has arrived so far: it makes one step, when "
         "all parts are there", EACH),
    Edit("a layer makes a step for each part of its gradient, and that is not the only bug",
         {**EACH, **BY_READINESS, **UNUSED}),
    Edit("each rank sends first what became ready last there. With branches that is another order on each rank, and "
         "gradients of different layers are added up, or the ranks wait for ever: take the order from the layers' "
         "numbers", BY_READINESS),
    Edit("the loss on held_out is that of the parameters from before the step: does an evaluation wait and step, as "
         "every forward pass has to?", UNUSED),
    Edit("the step after the last batch is not made: no training pass follows that would make it. Does an evaluation "
         "wait and step, as every forward pass has to?",
         {**UNUSED, LAST: f"    [work.wait() for i in parts for work, _ in parts[i]]\n{END}"}),
    Edit("of a gradient in several parts only the first part is used",
         of(LOOP, {"] = piece\n": "] = piece * (start == 0)\n"})),
    Edit("of a gradient in several parts only the last part is used",
         of(LOOP, {"            flat[": "            flat *= 0\n            flat["})),
    Edit("the gradients are added up over the ranks: the mean is wanted", of(SENDS, {" / dist.get_world_size()": ""})),
    Edit("the gradient of the step before is still in p.grad, and the next backward pass adds to it",
         of(LOOP, {"        optimizers[i].zero_grad()\n": ""})),
    Edit("the momentum is gone after each step: it stays in the optimizer's state",
         of(LOOP, {".step()\n": ".step()\n        optimizers[i].state.clear()\n"})),
)  # fmt: skip


def inputs(case: Case) -> Given:
    g, p, given = case.generator(), case.params, []
    shapes = pairwise(p.get("widths", [2, 2, 2, 2]))
    layers = [[0.7 * torch.randn(b, a, generator=g), torch.randn(b, generator=g)] for a, b in shapes]
    for rank in range(case.world_size):
        pairs = [[torch.randn(4, 2, generator=g) + 0.3 * rank, torch.randn(4, 2, generator=g)] for _ in range(4)]
        own = {"chained": "order" not in p, "order": p.get("order", [0, 1, 2]) if rank % 2 else [0, 1, 2]}
        same = {"lr": 0.1, "part": p["part"], "look": p.get("look", "batches")}
        given.append({"layers": layers, **own, "batches": pairs[:3], "held_out": pairs[3], **same})
    return given


def on_rank(
    answer: Any, layers: Any, chained: bool, order: Any, batches: Any, held_out: Any, lr: float, part: int, look: str
) -> Any:
    modules = [torch.nn.Linear(*reversed(weight.shape)) for weight, _ in layers]
    for module, (weight, bias) in zip(modules, layers, strict=True):
        module.load_state_dict({"weight": weight.clone(), "bias": bias.clone()})

    def forward(x: torch.Tensor) -> torch.Tensor:
        outputs: Any = {}
        for number in order:
            outputs[number] = torch.tanh(modules[number](x))
            x = outputs[number] if chained else x
        return x if chained else outputs[0] + 2 * outputs[1] - outputs[2]

    trained, evaluated = answer(modules, forward, [tuple(b) for b in batches], tuple(held_out), lr=lr, part=part)
    both = {"losses of the batches": trained, "losses on held_out": evaluated}
    facts = both if look == "both" else {"losses of the batches": trained}
    return {**facts, "parameters": [[p.detach() for p in module.parameters()] for module in modules]}


def predicted(leaves: list[list[torch.Tensor]], x: torch.Tensor, chained: bool) -> torch.Tensor:
    outputs: list[torch.Tensor] = []
    for weight, bias in leaves:
        outputs.append(torch.tanh((outputs[-1] if chained and outputs else x) @ weight.T + bias))
    return outputs[-1] if chained else outputs[0] + 2 * outputs[1] - outputs[2]


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    """One process with the batches of all ranks, in float64."""
    first, trained, evaluated = given[0], list[list[float]](), list[list[float]]()
    leaves = [[p.double().requires_grad_() for p in layer] for layer in first["layers"]]
    optimizer = torch.optim.SGD([p for layer in leaves for p in layer], lr=first["lr"], momentum=0.9)

    def losses(pairs: list[list[torch.Tensor]]) -> list[torch.Tensor]:
        return [mse_loss(predicted(leaves, x.double(), first["chained"]), y.double()) for x, y in pairs]

    for step in range(3):
        optimizer.zero_grad()
        own = losses([one["batches"][step] for one in given])
        torch.stack(own).mean().backward()
        optimizer.step()
        trained.append([loss.item() for loss in own])
        evaluated.append([loss.item() for loss in losses([one["held_out"] for one in given])])
    results: list[dict[str, Any]] = [{"losses of the batches": list(own)} for own in zip(*trained, strict=True)]
    parameters = [[p.detach().float() for p in layer] for layer in leaves]
    for result, after in zip(results, zip(*evaluated, strict=True), strict=True):
        if first["look"] == "both":
            result["losses on held_out"] = list(after)
        result["parameters"] = parameters
    return results


def small_parts(case: Case, given: Given, record: Record) -> Finding | None:
    """A rule: no all-reduce has more elements than a part."""
    for event in record:
        elements = math.prod(event.shape or ())
        if event.shape is not None and elements > given[0]["part"]:
            text = f"line {event.line} of rank {event.rank}: {event.op} of {elements} elements, and a part has "
            return Finding("DTL-RULE-BYTES", f"{text}{given[0]['part']} at most", event.rank, event.line or None)
    return None


def why(case: Case, given: Given, record: Record) -> str:
    """The hint for a run that raised or waits."""
    return f"{MAY_HELP}{case.says}" if case.says else ""


CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    why=why,
    rules=[
        rules.only("all_reduce", why="gradients are averaged by all_reduce"),
        small_parts,
        no_silent_rank(least_calls=lambda case, given: 9),
    ],
    reads=[no_stores],
    stress=Stress(poison=True),
    rtol=2e-4,
    atol=2e-5,
)
