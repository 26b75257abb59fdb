"""ch04.stale_update: a fresh push first; then staleness, several pushes, and what makes an optimizer harder."""

from __future__ import annotations

from typing import Any

import torch

from dtlearn.grading import Case, Check, Edit, Given, rules
from dtlearn.runtime.record.record import Record

from ..sent import no_stores
from . import MAY_HELP

# Per case: `stale`, the staleness of each push; below 0 it is of a version that is still to come.
CASES: dict[str, dict[str, Any]] = {
    "a fresh push": {"stale": [0]},
    "a stale push": {
        "says": "the rate of this step is divided by 1 + the number of updates between the pull and the push",
        "stale": [0, 0, 3],  # of workers 0, 1 and 0
    },
    "several pushes": {
        "says": "the next push finds what this one leaves behind: the optimizer's rates as they were, the next "
        "version, and a log with one more entry",
        "stale": [2, 0, 3],
    },
    "Adam": {
        "says": "it is the optimizer that steps, with a smaller rate: Adam divides by the gradient's size, so that a "
        "smaller gradient is no smaller step",
        "stale": [3, 1],
        "optimizer": "Adam",
    },
    "two groups": {
        "says": "each group of the optimizer has a rate of its own, and each is divided",
        "stale": [1, 2],
        "lr": [0.4, 0.1],
    },
    "a gradient that is None": {
        "says": "a parameter whose gradient is None is not updated: not with the gradient of an earlier push, and not "
        "with zeros, which momentum would carry on",
        "stale": [1, 2],
        "optimizer": "SGD with momentum",
        "none": True,
    },
    "a version that is still to come": {
        "says": "a push of a version that the server does not have is refused, and changes nothing: neither the rates, "
        "nor the gradients, nor the optimizer's state",
        "stale": [0, -1, 0],
        "optimizer": "SGD with momentum",
    },
}
STALENESS, FACTOR = "staleness = server.version - pulled", "rate / (1 + staleness)"
GRADIENT, STEP = "parameter.grad = gradient", "server.optimizer.step()"
RESTORE = 'group["lr"] = rate\n'
LOG, APPLIED = "server.log.append(", '"applied": server.version'
EDITS = (
    Edit("the rate is not divided: a gradient that is out of date is applied like a fresh one", {FACTOR: "rate"}),
    Edit("the rate is divided by the staleness, so that a push that is one update old counts as a fresh one: divide by "
         "1 + staleness", {FACTOR: "rate / max(1, staleness)"}),
    Edit("the update of the push itself is counted in its staleness: only those before it are",
         {STALENESS: f"{STALENESS} + 1"}),
    Edit("the staleness is the number of pushes in the log: it is the updates since this worker's pull",
         {STALENESS: "staleness = len(server.log)"}),
    Edit("the number of pushes in the log is taken for the version: the server may come back from a checkpoint, and "
         "then its log begins later", {STALENESS: "staleness = len(server.log) - pulled"}),
    Edit("the staleness is counted in the log, which a server from a checkpoint begins anew: its version counts all "
         "updates", {STALENESS: 'staleness = sum(entry["applied"] > pulled for entry in server.log)'}),
    Edit("the gradient is divided by 1 + staleness, and the rate is not", {
        GRADIENT: "parameter.grad = None if gradient is None else gradient / (1 + staleness)", FACTOR: "rate"}),
    Edit("both the gradient and the rate are divided by 1 + staleness: the rate is", {
        GRADIENT: "parameter.grad = None if gradient is None else gradient / (1 + staleness)"}),
    Edit("the rates stay divided after the step: the next push is to find them as they were", {RESTORE: "pass\n"}),
    Edit("only the rate of the first group is divided", {FACTOR: "rate / (1 + staleness * (group is groups[0]))"}),
    Edit("all groups get the rate of the first one", {FACTOR: "rates[0] / (1 + staleness)"}),
    Edit("a parameter whose gradient is None keeps the gradient of an earlier push, and is updated with it",
         {GRADIENT: "parameter.grad = parameter.grad if gradient is None else gradient"}),
    Edit("None becomes a gradient of zeros: momentum then moves the parameter on",
         {GRADIENT: "parameter.grad = torch.zeros_like(parameter) if gradient is None else gradient"}),
    Edit("gradients of earlier pushes are added to those of this one",
         {GRADIENT: "parameter.grad = gradient if parameter.grad is None or gradient is None else parameter.grad + "
                    "gradient"}),
    Edit('"applied" is the version before the update: it is the first that has the push in it',
         {APPLIED: f"{APPLIED} - 1"}),
    Edit("the log has the last push only", {LOG: "server.log.clear(); server.log.append("}),
    Edit("a push of the next version, which the server does not have yet, is not refused",
         {"if pulled > server.version:": "if False:"}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    g, p = case.generator(), case.params
    start = int(torch.randint(5, 30, (), generator=g))  # the server came back from a checkpoint
    shapes = ((2,), (2, 2))
    parameters = [torch.randn(shape, generator=g) for shape in shapes]
    server = {"parameters": parameters, "optimizer": p.get("optimizer", "SGD"), "lr": p.get("lr", [0.4])}
    pushes, version = [], start
    for number, stale in enumerate(p["stale"]):
        gradients: list[Any] = [torch.randn(shape, generator=g) + 0.5 for shape in shapes]
        if "none" in p and number:
            gradients[1] = None
        pushes.append({"worker": number % 2, "gradients": gradients, "pulled": version - stale})
        version += stale >= 0
    return [{"server": {**server, "version": start}, "pushes": pushes}] * case.world_size


def on_rank(answer: Any, server: Any, pushes: Any) -> Any:
    from types import SimpleNamespace

    from dtlearn.grading.on_rank.tools import refusal_naming

    parameters = [torch.nn.Parameter(p.clone()) for p in server["parameters"]]
    rates, version, refused = server["lr"], server["version"], ""
    # One group has all parameters, or each has one.
    parts = [parameters] if len(rates) == 1 else [[p] for p in parameters]
    groups = [{"params": part, "lr": lr} for part, lr in zip(parts, rates, strict=True)]
    momentum = 0.9 * (server["optimizer"] == "SGD with momentum")
    is_adam = server["optimizer"] == "Adam"
    optimizer = torch.optim.Adam(groups) if is_adam else torch.optim.SGD(groups, lr=1.0, momentum=momentum)
    own = SimpleNamespace(parameters=parameters, optimizer=optimizer, version=version, log=[])
    for push in pushes:
        arguments = (own, push["worker"], push["gradients"], push["pulled"])
        if push["pulled"] > version:
            before = [None if p.grad is None else p.grad.tolist() for p in parameters]
            refused = refusal_naming([push["pulled"], version], answer, *arguments)
            if before != [None if p.grad is None else p.grad.tolist() for p in parameters]:
                refused += ", and the gradients are changed"
        else:
            answer(*arguments)
            version += 1
    facts = {"parameters": [p.detach() for p in parameters], "version": own.version, "log": own.log}
    return {**facts, "a version still to come": refused} if refused else facts


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    """The results of torch's optimizer in float64, which is told before each step which rates to use."""
    server, log = given[0]["server"], []
    parameters, version = [p.double().requires_grad_() for p in server["parameters"]], server["version"]
    groups = [{"params": [p], "lr": 1.0} for p in parameters]
    momentum = 0.9 * (server["optimizer"] == "SGD with momentum")
    is_adam = server["optimizer"] == "Adam"
    optimizer = torch.optim.Adam(groups) if is_adam else torch.optim.SGD(groups, lr=1.0, momentum=momentum)
    facts: dict[str, Any] = {}
    for push in given[0]["pushes"]:
        if push["pulled"] > version:
            facts = {"a version still to come": f"a ValueError that names {push['pulled']} and {version}"}
            continue
        for i, (parameter, gradient) in enumerate(zip(parameters, push["gradients"], strict=True)):
            parameter.grad = None if gradient is None else gradient.double()
            optimizer.param_groups[i]["lr"] = server["lr"][i % len(server["lr"])] / (version - push["pulled"] + 1)
        optimizer.step()
        version += 1
        entry = {"worker": push["worker"], "pulled": push["pulled"]}
        log.append({**entry, "applied": version, "staleness": version - 1 - push["pulled"]})
    facts = {"parameters": [p.detach().float() for p in parameters], "version": version, "log": log, **facts}
    return [facts] * case.world_size


def why(case: Case, given: Given, record: Record) -> str:
    """The hint for a run that raised: the server's version, and the versions that were pulled."""
    pulled = ", ".join(str(push["pulled"]) for push in given[0]["pushes"])
    return f"{MAY_HELP}the server is at version {given[0]['server']['version']}, and the pushes pulled {pulled}"


EXAMPLE = {
    "server": {"parameters": [torch.tensor([1.0, 2.0])], "optimizer": "SGD", "lr": [0.4], "version": 7},
    "pushes": [{"worker": 2, "gradients": [torch.tensor([1.0, -1.0])], "pulled": 4}],
}
CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    example=[EXAMPLE],
    why=why,
    rules=[rules.most_messages("0")],
    reads=[no_stores],
    may_change_inputs=True,
    rtol=2e-5,
    atol=2e-6,
)
