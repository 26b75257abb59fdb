"""ch04.bug_hunt: a synchronous parameter server, each of its three bugs in a case that shows this one only."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import mse_loss

from dtlearn.grading import Case, Check, Edit, Given, rules

from ..sent import no_stores

LATE = "a worker's step ends when it has the parameters after the update that its push is part of"
RATE = "the update with number i has the rate lr / (1 + i): updates are counted, not pushes"
LEFT = "a worker without a further batch is done, and the server goes on with the others: it waits for nobody who is "
LEFT += "done, and a mean is over the samples of those that push"
# Of each case: `batches`, the number of each worker's; `look`, whose parameters are compared.
CASES: dict[str, dict[str, Any]] = {
    "one step": {"batches": [1, 1, 1], "look": "server", "sizes": (3, 4)},
    "what a worker has": {"says": LATE, "batches": [1, 1, 1]},
    "three steps": {"says": RATE, "batches": [3, 3, 3]},
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
    """Of the loop in the solution: `as_found` has the same lines."""
    return Edit(says, {LOOP: Edit(says, changes).applied_to(LOOP)})


EDITS = (
    edit("after a step a worker has the parameters from before the step's update, and with these it computes its next "
         "gradient", {ANSWER: "", TAKEN: f"{TAKEN}\n            dist.send(flat, worker)"}),
    edit("with two workers the learning rate falls twice as fast as lr / (1 + i), where i is the number of the update",
         {COUNT: "", TAKEN: f"{TAKEN}\n            updates += 1"}),
    edit("a worker that is done counts in the mean with its last gradient: the mean is over those that push",
         {"    updates = 0": "    updates, last = 0, {}", TOTAL: "last[worker] = header[0] * gradient, int(header[0])",
          SAMPLES: "pass", MEAN: "flat.grad = sum(g for g, _ in last.values()) / sum(n for _, n in last.values())"}),
    edit("the sum is divided by the samples of the first step: a worker that is done has none",
         {"    updates = 0": "    updates, first = 0, 0",
          MEAN: "first = first or samples\n        flat.grad = total / first"}),
    edit("the gradients are averaged without their numbers of samples: batches have different sizes",
         {TOTAL: "total += gradient", SAMPLES: "samples += 1"}),
    edit("the gradients are added up, each times its samples, and not divided by all samples of the step",
         {MEAN: "flat.grad = total"}),
    edit("every push is a step of the optimizer: synchronous means one update for all pushes of a step",
         {TOTAL: "flat.grad = gradient; optimizer.step()", MEAN: "pass", STEP: ""}),
    edit("the rate of an update is that of the one before: the update with number i has lr / (1 + i)",
         {SCHEDULE: SCHEDULE.replace("1 + updates", "max(1, updates)")}),
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
        for _ in range(case.params["batches"][rank - 1] if rank else 0):
            x = torch.randn(rank + 1, 3, generator=g) + 0.3
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


CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    rules=[rules.only("send", "recv", "isend", "irecv", why="what is sent goes to the server or comes from it")],
    reads=[no_stores],
    rtol=2e-4,
    atol=2e-5,
)
