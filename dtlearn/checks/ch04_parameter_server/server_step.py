"""ch04.server_step: a few steps of two small parameters; one process makes them with the mean of all gradients."""

from __future__ import annotations

import math
from typing import Any

import torch

from dtlearn.grading import Case, Check, Edit, Finding, Given, Stress, rules
from dtlearn.runtime.record.record import Record

from ..own_work import no_objects
from ..sent import no_silent_rank, no_stores
from . import MAY_HELP

SHAPES = ((3,), (2, 2))
BESIDE = 128  # bytes: what a worker may send or receive beside them in a step
SAMPLES = "a gradient counts with the number of samples that it is the mean of: more samples, more weight"
# Per case: `samples` by worker and `steps`; `optimizer` and its options; `server`; `missing`: which parameter of
# the first worker has no gradient; `old`: workers begin with other parameters than the server; `shapes`.
CASES: dict[str, dict[str, Any]] = {
    "equal numbers of samples": {},
    "unequal numbers of samples": {"says": SAMPLES, "samples": [3, 8, 1], "sizes": (3, 4)},
    "three steps": {"says": "each step is made with the gradients of this step alone", "steps": 3},
    "workers with old parameters": {
        "says": "a pull replaces what a worker has: it may have missed a step, or begin now",
        "old": True,
    },
    "Adam": {
        "says": "the optimizer is any of torch.optim, and makes the step by itself with the state that it keeps",
        "optimizer": ["Adam", {"lr": 0.1}],
        "steps": 3,
    },
    "a gradient that is None": {
        "says": "a gradient that is None counts as zeros, with the samples of its worker",
        "missing": 1,
        "samples": [3, 8, 1],
    },
    "a worker without samples": {
        "says": "without samples a worker's gradients are NaN and must not count; 0 * NaN is NaN",
        "samples": [0, 5, 2],
        "sizes": (3, 4),
    },
    "larger parameters": {
        "says": "in a step a worker sends its gradients once, and the server each worker the parameters once",
        "shapes": ((6, 6), (2, 2)),  # twice their bytes are more than once and BESIDE
    },
    "the server on the last rank": {"says": "the server is the rank `server`, not always rank 0", "server": -1},
}
ADD, MEAN, STEP, TOTAL = "s += count * arrived", "p.grad = s / total", "    optimizer.step()\n", "total += count.item()"
PUSHED = "torch.zeros_like(p) if gradient is None else gradient"
INTO, FROM, GUARD = "dist.recv(p.data, server)", "dist.send(p.detach(), worker)", "if count > 0:"
EDITS = (
    Edit("the numbers of samples are ignored: the weighted mean is expected, not the mean of the workers' means",
         {ADD: "s += arrived", TOTAL: "total += 1"}),
    Edit("the weighted sum of the gradients is not divided by the samples of all workers", {MEAN: "p.grad = s"}),
    Edit("the gradients of the workers are added up: one step with their weighted mean is expected",
         {ADD: "s += arrived", MEAN: "p.grad = s"}),
    Edit("the server makes a step with each worker's gradients by themselves: one with the mean of all is expected",
         {"for s in sums:": "for p, s in zip(parameters, sums, strict=True):", MEAN: "pass", STEP: "",
          ADD: "p.grad = arrived\n                if s is sums[-1]:\n                    optimizer.step()"}),
    Edit("the server counts as a worker: the sum is divided by the number of ranks",
         {ADD: "s += arrived", MEAN: "p.grad = s / dist.get_world_size()"}),
    Edit("only the gradients of the last worker are left: add up those of all", {ADD: "s.copy_(count * arrived)",
         MEAN: "p.grad = s / count"}),
    Edit("the server makes no step: optimizer.step()", {STEP: ""}),
    Edit("the server makes a step for each worker: one with the mean of all is expected",
         {STEP: "    for _ in workers:\n        optimizer.step()\n"}),
    Edit("the workers have the parameters from before the step: the server sends them after it",
         {STEP: "", "            dist.send(p.detach(), worker)\n": f"            {FROM}\n{STEP}"}),
    Edit("the workers' parameters are as they were: what they pull goes into other tensors; receive into p.data",
         {INTO: "dist.recv(p.detach().clone(), server)"}),
    Edit("the workers pull the gradients: they need the parameters", {FROM: "dist.send(p.grad, worker)"}),
    Edit("only the last worker pulls the new parameters: the others have those from before the step",
         {FROM: "dist.send(p.detach() if worker == workers[-1] else before.pop(0), worker)",
          STEP: f"    before = [p.detach().clone() for p in parameters] * len(workers)\n{STEP}"}),
    Edit("the gradients of the steps before are added: set .grad anew in each step",
         {MEAN: "p.grad = s / total + (0 if p.grad is None else p.grad)"}),
    Edit("the optimizer's state is lost from step to step: keep the optimizer that was given",
         {STEP: f"    optimizer.state.clear()\n{STEP}"}),
    Edit("what has no gradient counts as ones: as zeros", {PUSHED: PUSHED.replace("zeros", "ones")}),
    Edit("where a worker's gradient is None its samples are left out: they count, with a gradient of zeros",
         {PUSHED: PUSHED.replace("zeros_like(p)", "full_like(p, float('nan'))"),
          "total, sums =": "missed = {}; total, sums =",
          GUARD: "is_none = arrived.isnan().all().item()\n"
          "            missed[id(s)] = missed.get(id(s), 0) + is_none * count.item()\n            if not is_none:",
          MEAN: "p.grad = s / max(total - missed[id(s)], 1)"}),
    Edit("NaN from a worker without samples reaches the parameters: 0 * NaN is NaN, leave it out", {GUARD: "if True:"}),
    Edit("a worker without samples counts as if it had one", {TOTAL: "total += max(count.item(), 1)"}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    p, n, g = case.params, case.world_size, case.generator()
    server, optimizer = p.get("server", 0) % n, p.get("optimizer", ["SGD", {"lr": 0.5}])
    shapes = p.get("shapes", SHAPES)
    start = [torch.randn(shape, generator=g) for shape in shapes]
    workers = [rank for rank in range(n) if rank != server]
    given: Given = [{} for _ in range(n)]
    for place, rank in enumerate(workers):
        own = start if "old" not in p else [torch.randn(shape, generator=g) for shape in shapes]
        count = p.get("samples", [4, 4, 4])[place]
        steps = []
        for _ in range(p.get("steps", 1)):
            gradients: list[Any] = [torch.randn(shape, generator=g) + (0 if count else math.nan) for shape in shapes]
            if place == 0 and "missing" in p:
                gradients[p["missing"]] = None
            steps.append([gradients, count])
        given[rank] = {"parameters": own, "optimizer": None, "steps": steps}
    given[server] = {"parameters": start, "optimizer": optimizer, "steps": [[[], 0]] * p.get("steps", 1)}
    return [as_given(one["steps"], one["parameters"], one["optimizer"], server) for one in given]


def as_given(steps: Any, parameters: Any, optimizer: Any, server: int) -> dict[str, Any]:
    """The inputs under the learner's names: the first step's, and `later` with the steps after it."""
    (gradients, num_samples), *later = steps
    own = {"parameters": parameters, "optimizer": optimizer, "gradients": gradients, "num_samples": num_samples}
    return {**own, "server": server, "later": later}


def on_rank(
    answer: Any, parameters: Any, optimizer: Any, gradients: Any, num_samples: int, server: int, later: Any
) -> Any:
    held = [torch.nn.Parameter(p.clone()) for p in parameters]
    made = getattr(torch.optim, optimizer[0])(held, **optimizer[1]) if optimizer else None
    result = {}
    for step, (pushed, count) in enumerate([(gradients, num_samples), *later], 1):
        answer(list(held), made, [None if g is None else g.clone() for g in pushed], count, server=server)
        result[f"parameters after step {step}"] = [p.detach().clone() for p in held]
    return result


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    """One process with the gradient of all samples."""
    server = given[given[0]["server"]]
    parameters = [torch.nn.Parameter(p.clone()) for p in server["parameters"]]
    optimizer = getattr(torch.optim, server["optimizer"][0])(parameters, **server["optimizer"][1])
    steps = [[(own["gradients"], own["num_samples"]), *own["later"]] for own in given]
    result = {}
    for step, pushes in enumerate(zip(*steps, strict=True), 1):
        counted = [(gradients, count) for gradients, count in pushes if count]
        total = sum(count for _, count in counted)
        for i, p in enumerate(parameters):
            p.grad = torch.zeros_like(p)
            for gradients, count in counted:
                if gradients[i] is not None:
                    p.grad += gradients[i] * (count / total)
        optimizer.step()
        result[f"parameters after step {step}"] = [p.detach().clone() for p in parameters]
    return [result] * case.world_size


def nbytes(given: Given) -> int:
    """The bytes of all parameters."""
    return sum(p.nbytes for p in given[0]["parameters"])


def between_worker_and_server(case: Case, given: Given, record: Record) -> Finding | None:
    """Messages have the server at one end, and carry gradients and parameters once."""
    server, steps = given[0]["server"], 1 + len(given[0]["later"])
    for event in record:
        if server not in (event.rank, event.peer):
            text = f"line {event.line} of rank {event.rank}: {event.op} with rank {event.peer}, which is a worker"
            text += f" as well; workers talk to the server only, rank {server}"
            return Finding("DTL-RULE-ROUTE", text, event.rank, event.line or None)
    for rank in range(case.world_size):
        sent, receivers = rules.bytes_of(record, rank), case.world_size - 1 if rank == server else 1
        if sent > (most := (nbytes(given) + BESIDE) * steps * receivers):
            what = "the parameters to each worker" if rank == server else "its gradients"
            text = f"rank {rank} sends {sent:,} bytes; {most:,} are enough: in each step ({steps}) {what} once"
            return Finding("DTL-RULE-BYTES", f"{text}, and {BESIDE} bytes more for each worker", rank)
    return None


def why(case: Case, given: Given, record: Record) -> str:
    """The hint for a run that raised, or whose calls do not match."""
    return f"{MAY_HELP}{case.says}" if case.says else ""


def example(num_samples: int, *gradients: float) -> dict[str, Any]:
    optimizer = None if gradients else ["SGD", {"lr": 0.1}]
    return as_given([[[torch.tensor([g]) for g in gradients], num_samples]], [torch.ones(1)], optimizer, 0)


CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    example=[example(0), example(3, 2.0), example(1, 6.0)],
    why=why,
    rules=[
        rules.only("send", "recv", "isend", "irecv", why="Each message goes from a worker to the server, or back."),
        no_silent_rank(least_bytes=lambda case, given: nbytes(given) * (1 + len(given[0]["later"]))),
        between_worker_and_server,
    ],
    reads=[no_stores, no_objects],
    stress=Stress(poison=True),
    rtol=1e-4,
    atol=1e-5,
)
