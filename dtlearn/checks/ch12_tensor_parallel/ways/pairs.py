"""What f and g make of tensors, right and in ways that people get wrong: for `f_and_g`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from dtlearn.grading import Given, Mistake
from dtlearn.runtime.words import listed


@dataclass(frozen=True)
class Way:
    """What each does with a tensor: "same", "sum", "mean", "all" (the sum over all ranks of the job), "last" (over the
    group that was given last), "none" (no gradient).

    `quiet` is what g does where no gradients are asked, None: the same; with `shared` its results share memory."""

    f: str = "same"
    f_back: str = "sum"
    g: str = "sum"
    g_back: str = "same"
    quiet: str | None = None
    shared: bool = False


_PARTIAL = "each rank has only what went through its own part of the weights; f has to all-reduce it in backward"
WAYS: tuple[tuple[str, str, Way], ...] = (
    ("SWAPPED", "f and g are swapped: f is first, and all-reduces in backward", Way("sum", "same", "same", "sum")),
    ("NO-GRADIENT", "no gradient comes through g: its backward pass is missing", Way(g_back="none")),
    ("NO-GRADIENT", "no gradient comes through f: its backward pass is missing", Way(f_back="none")),
    ("PARTIAL-GRADIENT", f"f leaves the gradient as it is: {_PARTIAL}", Way(f_back="same")),
    ("PARTIAL-SUM", "g hands on what each rank has: it has to add up the ranks' tensors", Way(g="same")),
    (
        "REDUCED-AGAIN",
        "f and g all-reduce in forward and in backward: each does so in one of them only",
        Way("sum", "sum", "sum", "sum"),
    ),
    (
        "REDUCED-AGAIN",
        "g all-reduces in backward too: every rank has the same gradient there already, and it becomes t times as "
        "large",
        Way(g_back="sum"),
    ),
    (
        "REDUCED-AGAIN",
        "f all-reduces in forward too: every rank has the same input there already, and it becomes t times as large",
        Way(f="sum"),
    ),
    ("AVERAGED", "f and g divide by the number of ranks: sums are asked", Way(f_back="mean", g="mean")),
    ("AVERAGED", "f divides the gradient by the number of ranks: a sum is asked", Way(f_back="mean")),
    ("AVERAGED", "g divides by the number of ranks: a sum is asked", Way(g="mean")),
    ("AVERAGED", "g divides the gradient by the number of ranks: it is handed on as it is", Way(g_back="mean")),
    ("GROUP-IGNORED", "f and g add up over all ranks of the job, not those of the group", Way(f_back="all", g="all")),
    ("GROUP-IGNORED", "f adds up over all ranks of the job, not those of the group", Way(f_back="all")),
    ("GROUP-IGNORED", "g adds up over all ranks of the job, not those of the group", Way(g="all")),
    (
        "LAST-GROUP",
        "all pairs use the group of the pair that was made last: a group belongs to its pair, not to a class or module",
        Way(f_back="last", g="last"),
    ),
    (
        "PARTIAL-SUM",
        "g hands on what each rank has where no gradients are asked (torch.no_grad): it has to add up there, too",
        Way(quiet="same"),
    ),
    (
        "RESULT-SHARED",
        "the second call of g changed what the first one had returned: each has to return a tensor of its own",
        Way(shared=True),
    ),
)


def play(given: Given, way: Way) -> list[dict[str, Any]]:
    """By rank: of each group and run, outputs and gradients."""
    made: list[dict[str, Any]] = [{} for _ in given]
    for number in range(len(given[0]["jobs"])):
        jobs = [own["jobs"][number] for own in given]
        all_of: dict[str, list[torch.Tensor]] = {name: [job[name] for job in jobs] for name in ("x", "h", "dy", "dz")}
        factors = [job["factor"].expand_as(job["x"]) for job in jobs]
        for rank, job in enumerate(jobs):
            groups = {"last": given[rank]["jobs"][-1]["group"], "all": [*range(len(jobs))]}
            group, title = groups | dict.fromkeys(("sum", "mean"), job["group"]), title_of(job)
            x, dx = _made(way.f, all_of["x"], rank, group), _made(way.f_back, all_of["dy"], rank, group)
            y, dy = _made(way.g, all_of["x"], rank, group), _made(way.g_back, all_of["dy"], rank, group)
            other, d_other = _made(way.f, all_of["h"], rank, group), _made(way.f_back, all_of["dz"], rank, group)
            d_sum = _made(way.f_back, factors, rank, group)
            assert x is not None and y is not None
            z, dz = _made(way.g, all_of["h"], rank, group), _made(way.g_back, all_of["dz"], rank, group)
            quiet = _made(way.quiet or way.g, all_of["x"], rank, group)
            assert z is not None
            # One tensor that was returned twice has the second call's place in the graph only.
            twice = [None, job["dy"] + job["dz"]] if way.shared else [dy, dz]
            for run, outputs, gradients in (
                ("f", [x], [dx]),
                ("g", [y], [dy]),
                ("f and a sum", [x.sum() * job["factor"]], [d_sum]),
                ("g of other strides", [y.mT], [dy]),
                ("f twice", [x, other], [dx, d_other]),
                ("g twice", [z, z] if way.shared else [y, z], twice),
                ("other shapes", [x.reshape(-1), z.reshape(2, 3, -1)], [dx, dz]),
                ("no gradients", [x, quiet], []),
            ):
                made[rank][f"{run}, {title}"] = {"outputs": outputs, "gradients": gradients}
    return made


def _made(kind: str, tensors: list[torch.Tensor], rank: int, groups: dict[str, list[int]]) -> torch.Tensor | None:
    """What a rank has of the tensors of all; kinds are those of `Way`."""
    if kind not in groups:
        return tensors[rank] if kind == "same" else None
    total = torch.stack([tensors[r].double() for r in groups[kind]]).sum(0)
    return (total / (len(groups[kind]) if kind == "mean" else 1)).to(tensors[rank].dtype)


def layers(given: Given) -> list[dict[str, Any]]:
    """By rank: of each group, the whole layer in one process."""
    made: list[dict[str, Any]] = [{} for _ in given]
    for number in range(len(given[0]["jobs"])):
        for group in given[0]["jobs"][number]["groups"]:
            jobs = [given[rank]["jobs"][number] for rank in group]
            x = jobs[0]["h"].double().clone().requires_grad_()
            a = torch.cat([job["a"] for job in jobs]).double().requires_grad_()
            b = torch.cat([job["b"] for job in jobs], 1).double().requires_grad_()
            y = x + torch.tanh(x @ a.T) @ b.T
            dx, da, db = torch.autograd.grad(y, (x, a, b), jobs[0]["dh"].double())
            parts = zip(group, jobs, da.chunk(len(group)), db.chunk(len(group), 1), strict=True)
            for rank, job, da_part, db_part in parts:
                dtype = job["x"].dtype
                values = {"outputs": [y], "gradients": [dx, da_part, db_part]}
                made[rank][f"a layer, {title_of(job)}"] = {
                    name: [v.detach().to(dtype) for v in tensors] for name, tensors in values.items()
                }
    return made


def title_of(job: dict[str, Any]) -> str:
    group = job["group"]
    return f"group of rank{'s' * (len(group) > 1)} {listed(group)}"


def hooked(given: Given, made: list[dict[str, Any]]) -> Mistake:
    """In the layer x has another branch, whose gradient is added up too; `made` is what is right, and is changed."""
    for rank, own in enumerate(given):
        for job in own["jobs"]:
            values = made[rank][f"a layer, {title_of(job)}"]
            dx, *others = values["gradients"]
            values["gradients"] = [dx + (len(job["group"]) - 1) * job["dh"], *others]
    text = (
        "f adds up all of the gradient of its input, also what did not come through f, as a hook on the input itself "
    )
    return Mistake("DTL-VALUE-REDUCED-AGAIN", f"{text}does: hand on a tensor of its own, x.view_as(x)", made)
