"""What right and wrong answers to ch09.zero1_step make of the parameters, computed on whole vectors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from dtlearn.grading import Given


@dataclass(frozen=True)
class Way:
    """One way to make the steps.

    Attributes:
        divisor: of the sum of the gradients, from N, the size of the group, and the size of the world.
        own: a rank updates its shard by its own gradient.
        everyone: the gradients of all ranks are added up, not those of the group.
        gathered: each rank gets the others' shards.
        kept: the optimizer's state is kept from step to step.
        options: which of them are used.
        added: gradients of earlier steps are added to those of this one.
        still: `flat` is not changed.
    """

    divisor: str = "N"
    own: bool = False
    everyone: bool = False
    gathered: bool = True
    kept: bool = True
    options: str = "own"
    added: bool = False
    still: bool = False


RIGHT = Way()
WAYS: tuple[tuple[str, str, Way], ...] = (
    ("NOT-MEAN", "the gradients are added up over the ranks, and not divided by N", Way("1")),
    ("NOT-MEAN", "the gradients are divided by N twice", Way("N*N")),
    ("NOT-MEAN", "the sum over the group is divided by the number of all ranks, not of those in group", Way("world")),
    (
        "OWN-GRADIENT",
        "each rank updates its shard by its own gradient: the gradients of others are missing",
        Way(own=True),
    ),
    (
        "OWN-GRADIENT",
        "each rank updates its shard by its own gradient, divided by N",
        Way("N", own=True, options="own/N"),
    ),
    (
        "NOT-GATHERED",
        "each rank has the new values of its own shard, and the others' shards are old",
        Way(gathered=False),
    ),
    ("STATE-LOST", "in each step the optimizer begins anew, without the state of the step before", Way(kept=False)),
    ("FIRST-GROUP", "all parameters are trained with the options of the first group", Way(options="first")),
    ("OPTIONS-LOST", "the options of the groups are not used: the optimizer has its defaults", Way(options="none")),
    ("OPTIONS-LOST", "of the options only `lr` is used", Way(options="lr")),
    (
        "NOT-COPIED",
        "flat keeps its old values: the optimizer updates a copy of the shard. A slice of flat is the same memory, "
        "and its .clone() is not",
        Way(still=True),
    ),
    (
        "ADDED-UP",
        "from the second step on, the gradients of the steps before are added: p.grad has to begin anew in each step",
        Way(added=True),
    ),
    (
        "GROUP-IGNORED",
        "the mean is over all ranks: with `group`, it is over those of the group",
        Way("world", everyone=True),
    ),
)


def play(given: Given, way: Way) -> list[list[list[torch.Tensor]]]:
    """[rank][job][step]: `flat` afterwards."""
    played: list[list[list[torch.Tensor]]] = [[] for _ in given]
    for number, job in enumerate(given[0]["jobs"]):
        jobs = [i["jobs"][number] for i in given]
        for members in job["members"] or [list(range(len(given)))]:
            for rank, steps in zip(members, _steps(jobs, members, way), strict=True):
                played[rank].append(steps)
    return played


def _steps(jobs: list[dict[str, Any]], members: list[int], way: Way) -> list[list[torch.Tensor]]:
    """Of each member of one group."""
    job, size = jobs[members[0]], len(members)
    if way.own and way.options == "own/N":
        way, scale = Way(own=True), 1 / size
    else:
        scale = 1.0
    divisor = {"1": 1, "N": size, "N*N": size * size, "world": len(jobs)}[way.divisor]
    flat = job["flat"].double()
    start, shard = flat.clone(), len(flat) // size
    pieces = [torch.nn.Parameter(flat[one["start"] : one["stop"]]) for one in job["groups"]]
    groups = [{"params": [p], **_options(job["groups"], k, way)} for k, p in enumerate(pieces)]
    make = getattr(torch.optim, job["optimizer"])
    optimizer, after = make(groups), list[torch.Tensor]()
    for k in range(len(job["gradients"])):
        own = [jobs[r]["gradients"][k].double() for r in (range(len(jobs)) if way.everyone else members)]
        if way.own:
            gradient = torch.cat([g[i * shard :][:shard] for i, g in enumerate(own)]) * scale
        else:
            gradient = torch.stack(own).sum(0) / divisor
        if not way.kept:
            optimizer.state.clear()
        for piece, one in zip(pieces, job["groups"], strict=True):
            own_part = gradient[one["start"] : one["stop"]]
            piece.grad = own_part + piece.grad if way.added and piece.grad is not None else own_part
        optimizer.step()
        after.append((start if way.still else flat).float())
    if way.gathered:
        return [after] * size
    inside = [torch.arange(len(flat)) // shard == i for i in range(size)]
    return [[torch.where(mine, f, start.float()) for f in after] for mine in inside]


def _options(groups: list[dict[str, Any]], k: int, way: Way) -> dict[str, Any]:
    one = groups[0 if way.options == "first" else k]
    names = {"none": (), "lr": ("lr",)}.get(way.options, tuple(one))
    return {name: value for name, value in one.items() if name in names and name not in ("start", "stop")}
