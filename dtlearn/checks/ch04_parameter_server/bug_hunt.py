"""ch04.bug_hunt: a synchronous parameter server, each of its three bugs in a case that shows this one only."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch.nn.functional import mse_loss

from dtlearn.grading import Case, Check, Edit, Finding, Given, rules
from dtlearn.runtime.record.record import Record

from ..sent import no_stores
from . import MAY_HELP

LATE = "a worker's step ends when it has the parameters after the update that its push is part of"
LATER = "a step begins with what the one before leaves: the worker's new parameters, the momentum, and the rate "
LATER += "lr / (1 + i) of the update with number i, where updates are counted, not pushes"
LEFT = "a worker without a further batch is done, and the server goes on with the others: it waits for nobody who is "
LEFT += "done, and a mean is over the samples of those that push"
# Per case: `batches`, the number of each worker's; `look`, whose parameters are compared.
CASES: dict[str, dict[str, Any]] = {
    "one step": {"batches": [1, 1, 1], "look": "server", "sizes": (3, 4)},
    "what a worker has": {"says": LATE, "batches": [1, 1, 1], "sizes": (3, 4)},
    "three steps": {"says": LATER, "batches": [3, 3, 3]},
    "workers with fewer batches": {"says": LEFT, "batches": [1, 3, 2], "sizes": (3, 4)},
}
LOOP = """    updates = 0
    while working := [worker for worker in left if left[worker]]:
        optimizer.param_groups[0]["lr"] = lr / (1 + updates)
        total, samples = torch.zeros_like(flat), 0
        for worker in working:
            header, gradient = torch.empty(2, dtype=torch.int64), torch.empty_like(flat)
            dist.recv(header, worker)
            dist.recv(gradient, worker)
            total += header[0] * gradient
            samples += int(header[0])
            left[worker] = int(header[1])
        flat.grad = total / samples
        optimizer.step()
        updates += 1
        for worker in working:
            dist.send(flat, worker)
"""
TOTAL, SAMPLES, TAKEN = "total += header[0] * gradient", "samples += int(header[0])", "left[worker] = int(header[1])"
MEAN, STEP, COUNT = "flat.grad = total / samples", "        optimizer.step()\n", "        updates += 1\n"
ANSWER = "        for worker in working:\n            dist.send(flat, worker)\n"
SCHEDULE = 'optimizer.param_groups[0]["lr"] = lr / (1 + updates)'


def edit(says: str, changes: dict[str, str]) -> Edit:
    """An edit of the loop in the solution, which has the same lines as `as_found`."""
    return Edit(says, {LOOP: Edit(says, changes).applied_to(LOOP)})


PULLED = """            vector_to_parameters(flat, parameters)
        return
    optimizer = torch.optim.SGD([flat], lr=lr, momentum=0.9)
    left = dict.fromkeys(range(1, dist.get_world_size()), 1)
"""
EDITS = (
    edit("after a step a worker has the parameters from before the step's update, and with these it computes its next "
         "gradient", {ANSWER: "", TAKEN: f"{TAKEN}\n            dist.send(flat, worker)"}),
    # As found, up to where it waits. The first bug is the learner's to find.
    edit("a worker ends its step with other parameters than one process has then, and that is not the only bug: begin "
         "with one worker, and follow its second gradient",
         {ANSWER: "", COUNT: "", TAKEN: f"{TAKEN}\n            updates += 1\n            dist.send(flat, worker)"}),
    Edit("a worker computes all its gradients with the parameters of the start: what it receives has to reach the "
         "model before its next batch", {PULLED: PULLED.removeprefix("    ")}),
    edit("with two workers the learning rate falls twice as fast as lr / (1 + i), where i is the number of the update",
         {COUNT: "", TAKEN: f"{TAKEN}\n            updates += 1"}),
    edit("a worker that is done counts in the mean with its last gradient: the mean is over those that push",
         {"    updates = 0": "    updates, last = 0, {}", TOTAL: "last[worker] = header[0] * gradient, int(header[0])",
          SAMPLES: "pass", MEAN: "flat.grad = sum(g for g, _ in last.values()) / sum(n for _, n in last.values())"}),
    edit("the sum is divided by the samples of the first step: each step has its own",
         {"    updates = 0": "    updates, first = 0, 0",
          MEAN: "first = first or samples\n        flat.grad = total / first"}),
    edit("a gradient counts with the samples of its worker's first batch: batches of one worker differ, too",
         {"    updates = 0": "    updates, first = 0, {}",
          TOTAL: "count = first.setdefault(worker, int(header[0]))\n            total += count * gradient",
          SAMPLES: "samples += count"}),
    edit("the gradients are averaged without their numbers of samples: batches have different sizes",
         {TOTAL: "total += gradient", SAMPLES: "samples += 1"}),
    edit("the gradients are added up, each times its samples, and not divided by all samples of the step",
         {MEAN: "flat.grad = total"}),
    edit("every push is a step of the optimizer: synchronous means one update for all pushes of a step",
         {TOTAL: "flat.grad = gradient; optimizer.step()", MEAN: "pass", STEP: ""}),
    edit("the rate of an update is that of the one before: the update with number i has lr / (1 + i)",
         {SCHEDULE: SCHEDULE.replace("1 + updates", "max(1, updates)")}),
    edit("the first update has the rate lr / 2: updates are numbered from 0", {"    updates = 0": "    updates = 1"}),
    edit("the learning rate does not fall", {SCHEDULE: "pass"}),
    edit("the momentum is gone after each step: the optimizer's state stays on the server",
         {SCHEDULE: f"{SCHEDULE}; optimizer.state.clear()"}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    g = case.generator()
    start, slope = 0.3 * torch.randn(4, generator=g), torch.tensor([[1.0], [-2.0], [1.5]])
    given: Given = []
    for rank in range(case.world_size):
        batches = []
        for step in range(case.params["batches"][rank - 1] if rank else 0):
            x = torch.randn(rank + 1 + step, 3, generator=g) + 0.3
            batches.append([x, x @ slope + 1.0 + rank])
        look = case.params.get("look", "every model")
        given.append({"start": start, "batches": batches, "lr": 0.2, "look": look})
    return given


def on_rank(answer: Any, start: Any, batches: Any, lr: Any, look: Any = "every model") -> Any:
    model = torch.nn.Linear(3, 1)
    model.load_state_dict({"weight": start[None, :3].clone(), "bias": start[3:].clone()})
    answer(model, [tuple(pair) for pair in batches], lr)
    if look == "server" and rank > 0:  # type: ignore[name-defined] # noqa: F821
        return {}
    return {"parameters": torch.cat([p.detach().flatten() for p in model.parameters()])}


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    """One process with the batches of all workers, in float64."""
    model, momentum, lr = given[0]["start"].double(), torch.zeros(4).double(), given[0]["lr"]
    models = [model] * case.world_size
    for step in range(max(len(own["batches"]) for own in given)):
        workers = [rank for rank, own in enumerate(given) if step < len(own["batches"])]
        x, y = (torch.cat([given[rank]["batches"][step][i] for rank in workers]).double() for i in range(2))
        leaf = model.detach().requires_grad_()
        mse_loss(x @ leaf[:3, None] + leaf[3], y).backward()
        momentum = 0.9 * momentum + leaf.grad
        model = model.detach() - lr / (1 + step) * momentum
        for rank in (0, *workers):
            models[rank] = model
    looked_at = 1 if given[0]["look"] == "server" else case.world_size
    results: list[dict[str, Any]] = [{"parameters": one.float()} for one in models[:looked_at]]
    return results + [{}] * (case.world_size - looked_at)


def through_the_server(case: Case, given: Given, record: Record) -> Finding | None:
    """A rule: each message has rank 0 at one end."""
    for event in record:
        if 0 not in (event.rank, event.peer):
            text = f"line {event.line} of rank {event.rank}: {event.op} with rank {event.peer}, which is a worker as "
            text += "well; workers talk to the server only, rank 0"
            return Finding("DTL-RULE-ROUTE", text, event.rank, event.line or None)
    return None


def why(case: Case, given: Given, record: Record) -> str:
    """The hint for a run that raised or waits. While the server answers early, the third bug is not mentioned yet."""
    first = itertools.takewhile(lambda event: "recv" in event.op, record.select(rank=0))
    answers_early = len({event.peer for event in first}) < case.world_size - 1
    return "" if answers_early or not case.says else f"{MAY_HELP}{case.says}"


CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    why=why,
    rules=[
        rules.only("send", "recv", "isend", "irecv", why="what is sent goes to the server or comes from it"),
        through_the_server,
    ],
    reads=[no_stores],
    rtol=2e-4,
    atol=2e-5,
)
