"""ch14.mesh_batch: replicas with as many tokens each; then uneven ones, other axes, replicas without a token."""

from __future__ import annotations

from typing import Any

import torch

from dtlearn.grading import Case, Check, Edit, Given
from dtlearn.runtime.record.record import Record

from ..sent import no_silent_rank, no_stores
from . import MAY_HELP

SEES = "a rank's rows depend on its place along dp only"
# Per case: the mesh, innermost axis first, and how many targets of each row count.
CASES: dict[str, dict[str, Any]] = {
    "replicas alone": {"mesh": {"dp": 4}, "counts": [3] * 8},
    "targets of -100": {
        "says": "a target of -100 adds nothing to the losses, nor to the number by which they are divided",
        "mesh": {"dp": 4},
        "counts": [2] * 8,
    },
    "uneven numbers of tokens": {
        "says": "replicas have different numbers of targets that count: divide by the number of all replicas together",
        "mesh": {"dp": 4},
        "counts": [3, 2, 1, 0, 2, 2, 3, 1],
    },
    "tp inside": {
        "says": f"{SEES}: the ranks of a tp group see the same rows, which count once",
        "mesh": {"tp": 2, "dp": 2},
        "counts": [3, 1, 2, 3],
    },
    "tp outside": {
        "says": f"{SEES}, in whichever order the axes number the ranks: dist.get_rank(group) says it",
        "mesh": {"dp": 2, "tp": 2},
        "counts": [3, 1, 2, 3],
    },
    "stages": {
        "says": f"{SEES}: all stages of a pipeline work on the same rows",
        "mesh": {"pp": 2, "dp": 2},
        "counts": [1, 3, 3, 2],
    },
    "a replica without tokens": {
        "says": "a replica of whose targets none counts takes part, with a loss of 0",
        "mesh": {"tp": 2, "dp": 2},
        "counts": [0, 0, 2, 1],
    },
    "no tokens at all": {
        "says": "if no target of the global batch counts, the loss is 0, and not 0 / 0",
        "mesh": {"tp": 2, "dp": 2},
        "counts": [0, 0, 0, 0],
    },
}
REDUCE, RANK = 'dist.all_reduce(total, group=groups["dp"])', 'replica, replicas = dist.get_rank(groups["dp"])'
ROWS, COUNT = "list(range(replica * rows, (replica + 1) * rows))", "total = targets.ne(-100).sum()"
SCALED = "return loss_sum * replicas / total.clamp(min=1)"
EDITS = (
    Edit("each replica divides by the number of its own targets: its mean is not weighted",
         {REDUCE: "total *= replicas"}),
    Edit("the gradient is too small by the number of replicas, over which it is averaged: multiply the loss by it",
         {SCALED: "return loss_sum / total.clamp(min=1)"}),
    Edit("the sum of the losses is returned: divide it by the number of targets that count",
         {SCALED: "return loss_sum * replicas + 0 * total"}),
    Edit("targets of -100 are among those by whose number the loss is divided",
         {COUNT: "total = torch.tensor(targets.numel())"}),
    Edit("the replicas take rows in turn: each one has rows that follow one another",
         {ROWS: "list(range(replica, num_rows, replicas))"}),
    Edit("every replica has all rows", {ROWS: "list(range(num_rows))"}),
    Edit("every replica has the first rows", {ROWS: "list(range(rows))"}),
    Edit("the last rows are those of the first replica",
         {ROWS: "list(range((replicas - replica - 1) * rows, (replicas - replica) * rows))"}),
    Edit("targets are counted over all ranks: those of a tp or pp group have the same ones, and would count them twice",
         {REDUCE: "dist.all_reduce(total)"}),
    Edit("the loss is multiplied by the number of all ranks: it is averaged over the replicas only",
         {SCALED: SCALED.replace("replicas", "dist.get_world_size()")}),
    Edit("the loss is divided by the size of the tp group, whose ranks compute one loss together",
         {SCALED: f'{SCALED} / dist.get_world_size(groups["tp"])'}),
    Edit("every rank has rows of its own: the ranks of a tp group see the same ones",
         {RANK: "replica, replicas = dist.get_rank()", 'dist.get_world_size(groups["dp"])': "dist.get_world_size()",
          SCALED: SCALED.replace("replicas", 'dist.get_world_size(groups["dp"])')}),
    Edit("the replica is taken to be the rank divided by the size of the tp group: that is so if tp is the innermost "
         "axis, and there are no stages",
         {RANK: 'replica, replicas = dist.get_rank() // dist.get_world_size(groups["tp"]) '
                '% dist.get_world_size(groups["dp"])'}),
    Edit("the replica is taken to be the rank modulo the number of replicas: that is so if dp is the innermost axis",
         {RANK: 'replica, replicas = dist.get_rank() % dist.get_world_size(groups["dp"])'}),
    Edit("the stages of a pipeline have rows of their own: they work on the same ones, one after the other",
         {RANK: 'replica = dist.get_rank(groups["dp"]) * dist.get_world_size(groups["pp"]) '
                '+ dist.get_rank(groups["pp"])'
                '\n    replicas = dist.get_world_size(groups["pp"])',
          ', dist.get_world_size(groups["dp"])\n': ' * dist.get_world_size(groups["dp"])\n',
          SCALED: SCALED.replace("replicas", 'dist.get_world_size(groups["dp"])')}),
    Edit("the mean of a replica of whose targets none counts is NaN, which is 0 / 0: add up the losses",
         {COUNT: f"{COUNT}\n    own = total.clone()", 'reduction="sum"': 'reduction="mean"',
          SCALED: "return loss_sum * own * replicas / total.clamp(min=1)"}),
    Edit("if no target counts the loss is NaN, which is 0 / 0: then it is 0", {"total.clamp(min=1)": "total"}),
    Edit("the loss is divided by one target more than there are: clamp(min=1) leaves a total above 0 as it is",
         {"total.clamp(min=1)": "(total + 1)"}),
)  # fmt: skip


def global_batch(case: Case) -> dict[str, Any]:
    """The batch of all replicas, inputs and targets of shape (rows, T), and the weights (V, V) of a bigram model."""
    g, counts = case.generator(), case.params["counts"]
    inputs, targets = torch.randint(5, (2, len(counts), 3), generator=g)
    targets = torch.where(torch.arange(3) < torch.tensor(counts)[:, None], targets, -100)
    return {"inputs": inputs, "targets": targets, "weights": torch.randn(5, 5, generator=g)}


def replica_of(case: Case, rank: int) -> int:
    """A rank's place along dp."""
    inner = 1
    for axis, size in case.params["mesh"].items():
        if axis == "dp":
            return rank // inner % int(size)
        inner *= size
    return 0


def inputs(case: Case) -> Given:
    axes: dict[str, int] = case.params["mesh"]
    mesh = torch.arange(case.world_size).view([axes[name] for name in reversed(axes)])
    groups = {name: [[rank] for rank in range(case.world_size)] for name in ("tp", "pp", "dp")}
    for number, (name, size) in enumerate(axes.items()):
        groups[name] = mesh.movedim(-1 - number, -1).reshape(-1, size).tolist()
    return [{**global_batch(case), "groups": groups}] * case.world_size


def on_rank(answer: Any, inputs: Any, targets: Any, weights: Any, groups: Any) -> Any:
    from dtlearn.grading.on_rank.tools import own_group

    loaded: Any = []
    seen: Any = []
    parameter = torch.nn.Parameter(weights.clone())

    def load(rows: Any) -> Any:
        loaded.append([int(row) for row in rows])
        return inputs[loaded[-1]], targets[loaded[-1]]

    def model(rows: torch.Tensor) -> torch.Tensor:
        seen.append(rows.clone())
        return parameter[rows]

    axes = {axis: own_group(ranks) for axis, ranks in groups.items()}
    loss = answer(model, load, len(inputs), dict(axes))
    facts: Any = {"rows that are loaded, by call": loaded, "inputs of the model, by call": seen, "loss": loss}
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1 or not loss.requires_grad:
        why = "loss.requires_grad is False" if isinstance(loss, torch.Tensor) else "it is no tensor"
        return {**facts, "gradient": f"backward() does not work: {why}"}
    loss.backward()
    return {**facts, "loss": loss.detach().reshape(()), "gradient": parameter.grad}


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    """One process with the whole batch: each rank's rows get their terms of the mean over all targets that count."""
    whole, replicas = global_batch(case), case.params["mesh"]["dp"]
    rows, weights = len(whole["inputs"]) // replicas, whole["weights"].double().requires_grad_()
    chances = weights.log_softmax(-1)[whole["inputs"]]  # (rows, T, V)
    counts = whole["targets"] >= 0
    losses = -chances.gather(-1, whole["targets"].clamp(min=0)[..., None])[..., 0] * counts
    terms = losses / max(int(counts.sum()), 1)  # (rows, T); the mean is their sum
    results: list[dict[str, Any]] = []
    for rank in range(case.world_size):
        own = list(range(replica_of(case, rank) * rows, (replica_of(case, rank) + 1) * rows))
        loss = terms[own].sum() * replicas  # the average over the replicas divides by their number
        (gradient,) = torch.autograd.grad(loss, weights, retain_graph=True)
        results.append(
            {
                "rows that are loaded, by call": [own],
                "inputs of the model, by call": [whole["inputs"][own]],
                "loss": loss.detach().float(),
                "gradient": gradient.float(),
            }
        )
    return results


def why(case: Case, given: Given, record: Record) -> str:
    return f"{MAY_HELP}{case.says}" if case.says else ""


CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    rules=[no_silent_rank(least_calls=lambda case, given: len(set(case.params["counts"])) > 1)],
    why=why,
    reads=[no_stores],
    rtol=2e-5,
    atol=2e-6,
)
