"""ch01.sum_in_group: groups that cover the job: one, several, of one rank, and listed in another order."""

from __future__ import annotations

from typing import Any

import torch

from dtlearn.grading import Case, Check, Edit, Given, rules
from dtlearn.runtime.record.record import Record

# Groups by world size.
CASES: dict[str, dict[str, Any]] = {
    "one group of all ranks": {"groups": {2: [[0, 1]], 3: [[0, 1, 2]], 4: [[0, 1, 2, 3]]}, "sizes": (2, 3, 4)},
    "two groups": {
        "says": "the job has several groups: the sum over this rank's own group is expected",
        "groups": {4: [[0, 2], [1, 3]]},
        "sizes": (4,),
    },
    "a group of one rank": {
        "says": "groups may differ in size, and one may have a single rank: its sum is a new tensor, too",
        "groups": {1: [[0]], 2: [[0], [1]], 3: [[0, 2], [1]], 4: [[2], [0, 1, 3]]},
    },
    "ranks that are not in rising order": {
        "says": "the ranks of a group may stand in its list in any order, and so may the groups",
        "groups": {2: [[1, 0]], 3: [[2, 1, 0]], 4: [[3, 2, 0], [1]]},
        "sizes": (2, 3, 4),
    },
}
REDUCE, TOTAL = "dist.all_reduce(total, group=own)", "return total"
PARTS = "parts = [torch.empty_like(x) for _ in range(dist.get_world_size({0}))]; dist.all_gather(parts, x, group={0})"
MINE = "mine = next(ranks for ranks in groups if dist.get_rank() in ranks)"
EDITS = (
    Edit("this is the sum over all ranks of the job: the call went to the default group",
         {REDUCE: "dist.all_reduce(total)"}),
    Edit("every rank has the sum of the first group, not that of its own",
         {REDUCE: f"{PARTS.format(None)}; total = sum(parts[rank] for rank in groups[0])"}),
    Edit("only the ranks of the last group are summed: after the loop over all groups, its variables are the last ones",
         {REDUCE: f"_ = {REDUCE} if dist.get_rank() in ranks else None"}),
    Edit("only the ranks of the first group are summed: the others have their own x",
         {REDUCE: f"_ = {REDUCE} if dist.get_rank() in groups[0] else None"}),
    Edit("nothing is summed: every rank still has its own x", {REDUCE: "pass"}),
    Edit("only one rank of the group has the sum: what dist.reduce adds up, dst gets alone",
         {REDUCE: f"{MINE}; dist.reduce(total, dst=mine[0], group=own)"}),
    Edit("the sum is divided by the number of ranks in the group: a sum is expected, not a mean",
         {TOTAL: "return total / dist.get_world_size(own)"}),
    Edit("each rank's own x counts twice: it is in the sum over the group already", {TOTAL: "return total + x"}),
    Edit("each rank's own x counts twice, and that of the group's first rank is missing: the list that all_gather "
         "fills begins with the first rank of the group, not with one's own",
         {REDUCE: f"{PARTS.format('own')}; total = x + sum(parts[1:])"}),
    Edit("the list that all_gather fills is in rising order of the ranks, whatever the order in the group's list: own "
         "x counts twice, and another is missing",
         {REDUCE: f"{MINE}; {PARTS.format('own')}; "
                  "total = x + sum(p for r, p in zip(mine, parts) if r != dist.get_rank())"}),
    Edit("the x of the last rank of the group was added once for each: [tensor] * n holds one tensor n times",
         {REDUCE: "parts = [torch.empty_like(x)] * dist.get_world_size(own); "
                  "dist.all_gather(parts, x, group=own); total = sum(parts)"}),
    Edit("the result is zero everywhere: x was not put into the tensor that was summed",
         {"x.clone()": "torch.zeros_like(x)"}),
    Edit("what is returned is the x that was given, not a new tensor: a change of one changes the other (.clone())",
         {TOTAL: "return x if dist.get_world_size(own) == 1 else total"}),
)  # fmt: skip
OBJECTS = ("all_gather_object", "gather_object", "broadcast_object_list", "scatter_object_list")


def inputs(case: Case) -> Given:
    g, groups = case.generator(), case.params["groups"][case.world_size]
    return [{"x": torch.randn(2, generator=g), "groups": groups} for _ in range(case.world_size)]


def on_rank(answer: Any, x: torch.Tensor, groups: Any) -> Any:
    total = answer(x, groups)
    return {"sum": total, "a new tensor": total is not x}


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    own = [next(group for group in i["groups"] if rank in group) for rank, i in enumerate(given)]
    sums = [torch.stack([given[rank]["x"] for rank in group]).double().sum(0).float() for group in own]
    return [{"sum": total, "a new tensor": True} for total in sums]


def why(case: Case, given: Given, record: Record) -> str:
    """The hint where ranks make groups in different orders: each begins with its own. "" if that is not the case."""
    groups = given[0]["groups"]
    begun: dict[int, list[int]] = {}
    for event in record.select(op="new_group"):
        begun.setdefault(event.rank, event.detail.get("ranks") or [])
    if all(begun[rank] == groups[0] for rank in begun) or any(
        sorted(ranks) not in map(sorted, groups) or rank not in ranks for rank, ranks in begun.items()
    ):
        return ""
    return (
        "each rank begins with its own group, or makes no other; every rank has to make all groups, in the order given"
    )


CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    example=[{"x": torch.tensor([10.0 * rank]), "groups": [[0, 2], [1, 3]]} for rank in range(4)],
    rules=[rules.never(*OBJECTS, why="Tensors need no pickling.")],
    why=why,
    atol=1e-5,
)
