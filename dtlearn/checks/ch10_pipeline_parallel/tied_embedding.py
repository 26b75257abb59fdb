"""ch10.tied_embedding: a copy on each rank first; then on one rank alone, several on a rank, some not used."""

from __future__ import annotations

from typing import Any

import torch

from dtlearn.grading import Case, Check, Edit, Finding, Given, Stress
from dtlearn.runtime.record.record import Record

from ..rounded import rounded_to_float32
from ..sent import no_stores
from . import MAY_HELP

NONE = "a copy that was not used in this step has None as its gradient: it counts as zero, and it gets the sum too"
OWN = "two copies have the same tensor as their .grad: what is added to one is added to both (.clone())"
ADD_UP = "the uses of one weight add up"
# Per case: `copies`, by rank, those of the group's members in order, x for one that was not used; `groups`.
CASES: dict[str, dict[str, Any]] = {
    "a copy on each rank": {"copies": {2: ["."] * 2, 4: ["."] * 4}, "sizes": (2, 4)},
    "several copies on a rank": {
        "copies": {2: [".", ".."], 4: [".", ".", "..", "."]},
        "sizes": (2, 4),
        "says": "all copies of a rank count, and all get the sum",
    },
    "all copies on one rank": {
        "copies": {1: [".."], 2: ["", ".."], 4: ["", "", "..", ""]},
        "says": "where one rank alone has copies, several, its own sum is all; group is None there",
    },
    "a copy that was not used": {"copies": {1: [".x."], 2: [".x", "."], 4: [".", ".x", "..", "."]}, "says": NONE},
    "a rank that used none": {"copies": {2: ["x", "."], 4: [".", "xx", "..", "."]}, "sizes": (2, 4), "says": NONE},
    "ranks without a copy": {
        "copies": {4: [".", "", "", "."]},
        "sizes": (4,),
        "says": "ranks without a copy take no part: a call of the ranks with one needs group=group",
    },
    "two replicas of the pipeline": {
        "copies": {4: [".", ".", ".", "."]},
        "groups": [[0, 2], [1, 3]],
        "sizes": (4,),
        "says": "each replica has a group of its own",
    },
    "float64": {
        "copies": {1: [".."], 2: [".", "."], 4: [".", "..", "", "."]},
        "dtype": torch.float64,
        "says": "a gradient has the type of its weight",
    },
    "two weights": {
        "copies": {1: [".."], 2: [".", ".."], 4: [".", "..", "", "."]},
        "weights": 2,
        "says": "the sums of another weight are lost: the .grad of each copy is a tensor of its own",
    },
}
REDUCE, GIVE = "dist.all_reduce(total, group=group)", "copy.grad = total.clone()"
SUM, ALL = "for copy in copies:\n        if copy", f"for copy in copies:\n        {GIVE}"
TO_16 = "half = total.to(torch.{}); dist.all_reduce(half, group=group); total.copy_(half)"
EDITS = (
    Edit("each copy keeps the gradient of its own use: those of the others are missing, and the copies drift apart",
         {GIVE: "pass"}),
    Edit("the copies of one rank are added up; those of other ranks are missing", {REDUCE: "pass"}),
    Edit("the sum of the first rank of the group is given to all: those of the others are missing in it",
         {REDUCE: "dist.broadcast(total, group_src=0, group=group)"}),
    Edit("the sum of the last rank of the group is given to all: those of the others are missing in it",
         {REDUCE: "dist.broadcast(total, group_src=dist.get_world_size(group) - 1, group=group)"}),
    Edit(f"the sum is divided by the number of ranks in the group: {ADD_UP}",
         {REDUCE: f"{REDUCE}; total /= dist.get_world_size(group)"}),
    Edit(f"the sum of a rank's copies is divided by their number: {ADD_UP}",
         {"if group is not": "total /= len(copies)\n    if group is not"}),
    Edit("the total is added to the gradient of a copy, which is in it already: replace .grad by the total",
         {GIVE: "copy.grad = total.clone() if copy.grad is None else copy.grad + total"}),
    Edit("gradients count several times: the copies of a rank have its sum already, and are added up again",
         {"if group is not": "total *= len(copies)\n    if group is not"}),
    Edit("of the copies of a rank the gradient of the first one counts only: add up all of them",
         {SUM: SUM.replace("copies", "copies[:1]")}),
    Edit("of the copies of a rank only the first takes part, and only it gets a sum",
         {SUM: SUM.replace("copies", "copies[:1]"), ALL: ALL.replace("copies", "copies[:1]")}),
    Edit("of the copies of a rank only the first gets the sum", {ALL: ALL.replace("copies", "copies[:1]")}),
    Edit("a copy that was not used keeps None as its gradient: it has to get the sum, or it misses this step",
         {GIVE: f"if copy.grad is not None:\n            {GIVE}"}),
    Edit("the largest gradient is taken, element by element: add them up",
         {REDUCE: "dist.all_reduce(total, dist.ReduceOp.MAX, group=group)"}),
    Edit("the parameters themselves have changed; only their .grad may", {GIVE: f"{GIVE}; copy.data -= total"}),
    Edit(OWN, {"total.clone()": "total"}),
    Edit("gradients are sent as bfloat16, which keeps two or three digits", {REDUCE: TO_16.format("bfloat16")}),
    Edit("gradients are sent as float16, which keeps three digits", {REDUCE: TO_16.format("float16")}),
)  # fmt: skip


def groups_of(case: Case) -> list[list[int]]:
    """The ranks of each group: those with a copy, if there are several."""
    holders = [rank for rank, own in enumerate(case.params["copies"][case.world_size]) if own]
    return case.params.get("groups") or [holders]


def inputs(case: Case) -> Given:
    g, dtype = case.generator(), case.params.get("dtype", torch.float32)
    weights = [torch.randn(2, 3, dtype=dtype, generator=g) for _ in range(case.params.get("weights", 1))]

    def gradients(copies: str) -> list[torch.Tensor | None]:
        return [None if one == "x" else torch.randn(2, 3, dtype=dtype, generator=g) for one in copies]

    return [
        {
            "weights": weights,
            "gradients": [gradients(own) for _ in weights],
            "groups": [ranks for ranks in groups_of(case) if len(ranks) > 1],
        }
        for own in case.params["copies"][case.world_size]
    ]


def on_rank(answer: Any, weights: Any, gradients: Any, groups: Any) -> Any:
    from dtlearn.grading.on_rank.tools import own_group

    group = own_group(groups)
    everyone: Any = []
    for weight, own in zip(weights, gradients, strict=True):
        copies = [torch.nn.Parameter(weight.clone()) for _ in own]
        for copy, gradient in zip(copies, own, strict=True):
            copy.grad = None if gradient is None else gradient.clone()
        answer(list(copies), group)
        everyone.append(copies)
    places = [copy.grad.data_ptr() for copies in everyone for copy in copies if copy.grad is not None]
    return {
        ".grad of the copies": [[copy.grad for copy in copies] for copies in everyone],
        "parameters left alone": all(
            torch.equal(copy, weight) for copies, weight in zip(everyone, weights, strict=True) for copy in copies
        ),
        "each .grad a tensor of its own": len(places) == len({*places}),
    }


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    """The sum, in each group, over all copies that were used, in float64."""
    sums: list[list[Any]] = [[[] for _ in own["weights"]] for own in given]
    for ranks in groups_of(case):
        for number, weight in enumerate(given[0]["weights"]):
            parts = [g.double() for rank in ranks for g in given[rank]["gradients"][number] if g is not None]
            total = torch.stack(parts).sum(0).to(weight.dtype)
            for rank in ranks:
                sums[rank][number] = [total for _ in given[rank]["gradients"][number]]
    rest = {"parameters left alone": True, "each .grad a tensor of its own": True}
    return [{".grad of the copies": own, **rest} for own in sums]


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    """The copies agree to the last digit, and no digit is lost."""
    for ranks in groups_of(case):
        copies = [(rank, g) for rank in ranks for of_weight in got[rank][".grad of the copies"] for g in of_weight[:1]]
        if case.params.get("weights", 1) == 1 and not all(torch.equal(g, copies[0][1]) for _, g in copies):
            other = next(rank for rank, g in copies if not torch.equal(g, copies[0][1]))
            text = f"the sums on ranks {ranks[0]} and {other} are not the same to the last bit: added up in another "
            text = f"{text}order on each rank, they differ by a rounding, and the copies drift apart"
            return Finding("DTL-MISTAKE", text, other)
    return rounded_to_float32(expected(case, given), got)


def why(case: Case, given: Given, record: Record) -> str:
    """The hint for a run that raised, or whose calls do not match."""
    calling = {event.rank for event in record if event.nbytes}
    members = {rank for ranks in given[0]["groups"] for rank in ranks}
    if alone := sorted(calling - members):
        return f"group is None on rank {alone[0]}, and dist.all_reduce takes that for all ranks: nothing is to be sent"
    for rank in sorted(members - calling):
        if all(g is None for own in given[rank]["gradients"] for g in own):
            return f"the copies of rank {rank} have no gradient, which counts as zero, and rank {rank} takes part"
    return f"{MAY_HELP}{case.says or 'a gradient may be None, and group as well'}"


def recorded(case: Case, given: Given, record: Record) -> Finding | None:
    """What comes from other ranks was sent where it is counted."""
    needed = calls(case)
    for rank in sorted({rank for ranks in given[0]["groups"] for rank in ranks}):
        if (made := sum(event.nbytes > 0 for event in record.select(rank=rank))) < needed:
            text = f"the values are right, but rank {rank} made {made} calls of torch.distributed with data, where "
            text = f"{text}{needed} are needed: the rest went where nobody counts it"
            return Finding("DTL-RULE-CALLS", text, rank)
    return None


def calls(case: Case) -> int:
    return int(case.params.get("weights", 1))


EXAMPLE = {"weights": [torch.ones(2)], "groups": [[0, 2]]}
CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    example=[{**EXAMPLE, "gradients": [[torch.tensor(g) for g in own]]} for own in ([[1.0, 2.0]], [], [[10.0, 0.0]])],
    verify=verify,
    why=why,
    calls=calls,
    payload=lambda case, given: given[0]["weights"][0].nbytes,
    rules=[recorded],
    reads=[no_stores],
    stress=Stress(poison=True),
    atol=1e-5,
)
