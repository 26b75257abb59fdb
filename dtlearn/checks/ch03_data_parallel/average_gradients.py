"""ch03.average_gradients: all gradients; from the second case on the model has a part that no rank used."""

from __future__ import annotations

from typing import Any

import torch

from dtlearn.grading import Case, Check, Edit, Given
from dtlearn.runtime.record.record import Record
from dtlearn.runtime.words import ordinal

# Two branches of equal shapes: an all-reduce that pairs one with the other goes unnoticed.
SHAPES = {"first": (2, 3), "left": (2, 2), "left_bias": (2,), "right": (2, 2), "right_bias": (2,), "last": (1, 2)}
UNUSED = "a parameter that no rank used keeps None: an optimizer with momentum or weight decay moves one that has zeros"
# unused, frozen: parts that have no gradient on any rank; none: by rank. zero: parts whose gradient is there, and zero,
# as behind a ReLU that no sample passes.
CASES: dict[str, dict[str, Any]] = {
    "every gradient is there": {},
    "a parameter that no rank used": {"says": UNUSED, "unused": ["first"]},
    "a frozen parameter": {
        "says": "a frozen parameter has None on every rank, and keeps it",
        "unused": ["first"],
        "frozen": ["last"],
    },
    "a gradient that is None on rank 0": {
        "says": "a gradient that is None on some ranks counts as zero there, and these ranks get the mean, too",
        "unused": ["first"],
        "none": lambda rank: ["left_bias"] if rank == 0 else [],
        "sizes": (2, 3, 4),
    },
    "one gradient that is None on odd ranks, and one on even ranks": {
        "says": "each rank averages those gradients that it has, and they meet by position: so gradients of different "
        "parameters are added up, and nothing hangs, because their shapes are equal",
        "unused": ["first"],
        "none": lambda rank: ["left", "left_bias"] if rank % 2 else ["right", "right_bias"],
        "sizes": (2, 3, 4),
    },
    "a gradient of zeros on every rank": {
        "says": "a gradient of zeros is a gradient, and stays: only where no rank has one is it None",
        "unused": ["first"],
        "zero": ["right"],
    },
}
SIZE = "dist.get_world_size()"
DIVIDED, REDUCED, USED = f" / {SIZE}", "dist.all_reduce(flat)", "if users:"
WRITTEN, TRAINED = "parameter.grad = total", " if p.requires_grad]"
# The special ones first: of two that lead to the same values the first one names them.
EDITS = (
    Edit("a gradient of zeros is taken for None: it is a gradient, and stays; only where no rank has one is it None",
         {USED: "parameter.grad = None\n        if total.any():"}),
    Edit("each rank averages what rank 0 has: a parameter counts if ANY rank has a gradient for it (sum or max of the "
         "flags), not only if rank 0 has one",
         {REDUCED: f"own = flat[: len(parameters)].clone(); {REDUCED}; dist.broadcast(own, 0); "
          "flat[: len(parameters)] = own"}),
    Edit("a gradient that is None on one rank is averaged on no rank: a parameter counts if ANY rank has a gradient "
         "for it (sum or max of the flags), not only if every rank has one", {USED: f"if users == {SIZE}:"}),
    Edit("what was None stays None, where other ranks have the mean: the optimizer skips it there, and the models "
         "drift apart", {USED: "if parameter.grad is not None:"}),
    Edit("a rank that had None has the sum: this rank, too, has to divide",
         {SIZE: f"(1 if parameter.grad is None else {SIZE})"}),
    Edit("a gradient is averaged over the ranks that used it: a missing gradient counts as zero, and the sum is "
         "divided by the number of all ranks", {SIZE: "users"}),
    Edit("a frozen parameter gets zeros: its gradient is None on every rank and must stay None; an optimizer with "
         "momentum or weight decay moves it", {TRAINED: "]", USED: "if users or not parameter.requires_grad:"}),
    Edit("a parameter that no rank used gets zeros: its gradient is None on every rank and must stay None; an "
         "optimizer with momentum or weight decay moves it", {USED: "if True:"}),
    Edit("the sum over the ranks, not their mean: divide it by the number of ranks", {DIVIDED: ""}),
    Edit("averaged twice: the sum is divided by the number of ranks, and the mean once more", {SIZE: f"{SIZE} ** 2"}),
    Edit("the sum is divided by 2, however many ranks there are: ask dist.get_world_size()", {SIZE: "2"}),
    Edit("the mean is rounded down to whole numbers: `//` does that; divide with `/`", {DIVIDED: f" // {SIZE}"}),
    Edit("the mean has the digits of 16 bits only: the gradients are float32",
         {REDUCED: f"flat = flat.bfloat16(); {REDUCED}; flat = flat.float()"}),
    Edit("all ranks have the gradients of rank 0: that is a broadcast, and no data of the others counts",
         {REDUCED: "dist.broadcast(flat, 0)", DIVIDED: ""}),
    Edit("all ranks have the largest of the gradients: add them up",
         {REDUCED: "dist.all_reduce(flat, dist.ReduceOp.MAX)"}),
    Edit("the gradients are read where the numbers of users stand: they begin after these in the flat tensor, and are "
         "all taken as many places too early",
         {"flat.split(": "flat[: len(parameters)], *flat[: -len(parameters)].split(", "[len(parameters), *(": "[*("}),
    Edit("every rank still has its own gradients: the mean is in no parameter's `.grad`", {WRITTEN: "mean = total"}),
    Edit("a parameter itself is changed: only its `.grad` is replaced, and the optimizer steps later",
         {REDUCED: f"{REDUCED}; [p.data.sub_(1) for p in parameters]"}),
    Edit("the parameters are averaged, and every rank still has its own gradients: the mean belongs into `.grad`",
         {REDUCED: f"{REDUCED}; [dist.all_reduce(p.data) for p in parameters]; "
          f"[p.data.div_(dist.get_world_size()) for p in parameters]", WRITTEN: "mean = total"}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    g, given, p = case.generator(), [], case.params
    for rank in range(case.world_size):
        none = {*p.get("frozen", ()), *p.get("unused", ()), *p.get("none", lambda rank: ())(rank)}
        gradients: dict[str, Any] = {name: torch.randn(shape, generator=g) + rank + 1 for name, shape in SHAPES.items()}
        for name in SHAPES:
            gradients[name] = None if name in none else gradients[name] * (name not in p.get("zero", ()))
        # Other parameters on every rank, so that it shows if they are averaged in place of the gradients.
        parameters = {name: torch.randn(shape, generator=g) for name, shape in SHAPES.items()}
        given.append({"gradients": gradients, "parameters": parameters, "frozen": p.get("frozen", [])})
    return given


def on_rank(answer: Any, gradients: Any, parameters: Any, frozen: Any) -> Any:
    model = torch.nn.ParameterDict(
        [(name, p.clone()) for name, p in parameters.items()]
    )  # of a dict it sorts the names
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name not in frozen)
        parameter.grad = None if gradients[name] is None else gradients[name].clone()
    answer(model)
    kept = all(torch.equal(p, parameters[name]) for name, p in model.named_parameters())
    return {"gradients": {name: p.grad for name, p in model.named_parameters()}, "parameters left alone": kept}


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    means: dict[str, torch.Tensor | None] = {}
    for name in SHAPES:
        there = [own["gradients"][name] for own in given if own["gradients"][name] is not None]
        means[name] = (torch.stack(there).double().sum(0) / len(given)).float() if there else None
    return [{"gradients": means, "parameters left alone": True}] * len(given)


def payload(case: Case, given: Given) -> int:
    """Everything that may need a gradient, and for each parameter a number that says whether it has one."""
    own = given[0]
    numbers = sum(int(p.numel()) for name, p in own["parameters"].items() if name not in own["frozen"])
    return 4 * numbers + 8 * len(SHAPES)


def why(case: Case, given: Given, record: Record) -> str:
    """The hint where each rank averages only the gradients that it has: the first position where two ranks' differ; ""
    if something else is wrong."""
    names = [[name for name in SHAPES if own["gradients"][name] is not None] for own in given]
    for rank, own in enumerate(names):
        calls = [e.shape for e in record.select(rank=rank, op="all_reduce") if e.shape in SHAPES.values()]
        if calls != [SHAPES[name] for name in own][: len(calls)]:
            return ""
    for rank, own in enumerate(names):
        for k, (a, b) in enumerate(zip(names[0], own, strict=False)):
            if a != b:
                return (
                    f"each rank averages those gradients that it has, and they meet by position: the {ordinal(k + 1)} "
                    f"of rank 0 is that of {a!r}, of rank {rank} that of {b!r}"
                )
    return ""


EXAMPLE: list[dict[str, Any]] = [
    {"a": torch.tensor([2.0, 4.0]), "b": None, "c": None},
    {"a": torch.tensor([6.0, 0.0]), "b": torch.tensor([3.0]), "c": None},
]
CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    payload=payload,
    why=why,
    atol=3e-6,
    example=[
        {"gradients": own, "parameters": {"a": torch.ones(2), "b": torch.ones(1), "c": torch.ones(1)}, "frozen": []}
        for own in EXAMPLE
    ],
)
