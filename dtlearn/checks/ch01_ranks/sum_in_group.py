"""ch01.sum_in_group: groups that cover the job, of equal and of different sizes, also in an unusual order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from dtlearn.grading import Case, Check, Finding, Given, Mistake, rules
from dtlearn.grading.judging.compare import compare, difference
from dtlearn.runtime.record.record import Record

from ..own_work import not_new

# Groups by world size.
_GROUPS = {
    "strided": {1: [[0]], 2: [[0], [1]], 3: [[0, 2], [1]], 4: [[0, 2], [1, 3]]},
    "of different sizes, not in order": {1: [[0]], 2: [[1, 0]], 3: [[1, 2], [0]], 4: [[2], [3, 1, 0]]},
}


_OBJECTS = ("all_gather_object", "gather_object", "broadcast_object_list", "scatter_object_list")


def inputs(case: Case) -> Given:
    g = case.generator()
    groups = case.params["groups"][case.world_size]
    return [{"x": torch.randn(4, generator=g), "groups": groups} for _ in range(case.world_size)]


def on_rank(answer: Any, x: torch.Tensor, groups: Any) -> Any:
    total = answer(x, groups)
    return "x itself" if total is x else total


def expected(case: Case, given: Given) -> list[torch.Tensor]:
    groups = case.params["groups"][case.world_size]
    own = [next(g for g in groups if rank in g) for rank in range(case.world_size)]
    return [_sum(given, group) for group in own]


def _sum(given: Given, ranks: list[int]) -> torch.Tensor:
    return torch.stack([given[r]["x"] for r in ranks]).double().sum(0).float()


def mistakes(case: Case, given: Given) -> list[Mistake]:
    ranks, groups = range(case.world_size), case.params["groups"][case.world_size]
    right = expected(case, given)
    first = [_sum(given, list(ranks))] * case.world_size
    some = []
    for number, group in enumerate(groups):
        held = [right[r] if r in group else given[r]["x"] for r in ranks]
        name = "first" if number == 0 else "last" if number == len(groups) - 1 else f"{number + 1}."
        text = f"only the ranks of the {name} group, {group}, were summed: the others kept their own x"
        some.append(Mistake("DTL-VALUE-ONE-GROUP", text, held))
        text = f"every rank has the sum of the {name} group, {group}, not that of its own"
        some.append(Mistake("DTL-VALUE-ONE-GROUP", text, [_sum(given, group)] * case.world_size))
    everyone = "this is the sum over all ranks of the job: the call went to the default group"
    heads = [given[min(own)]["x"] for r in ranks for own in groups if r in own]
    last = [given[max(own)]["x"] * len(own) for r in ranks for own in groups if r in own]
    return [
        replace(not_new("x", case.world_size), values=["x itself" if [r] in groups else right[r] for r in ranks]),
        Mistake("DTL-VALUE-WORLD", everyone, first),
        *some,
        Mistake(
            "DTL-VALUE-LAST",
            "the x of the last rank of the group was added once for each: [tensor] * n holds one tensor n times",
            last,
        ),
        Mistake(
            "DTL-VALUE-EMPTY",
            "the result is zero everywhere: x was not put into the tensor that was summed",
            [torch.zeros_like(i["x"]) for i in given],
        ),
        Mistake(
            "DTL-VALUE-TWICE",
            "each rank's own x counts twice, and that of the group's first rank is missing: the list that all_gather "
            "fills begins with the first rank of the group, not with one's own",
            [right[r] - heads[r] + given[r]["x"] for r in ranks],
        ),
        Mistake(
            "DTL-VALUE-TWICE",
            "each rank's own x counts twice: it is in the sum over the group already",
            [right[r] + given[r]["x"] for r in ranks],
        ),
    ]


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    """Compares. Where only the roots are right, the record may show a reduce."""
    right, groups = expected(case, given), case.params["groups"][case.world_size]
    found = compare(_VALUES, case, given, right, got)
    call = next((event for event in record if event.op == "reduce"), None)
    if found is None or call is None or found.code not in ("DTL-VALUE", "DTL-VALUE-ONE-RANK"):
        return found
    roots = {event.peer for event in record if event.op == "reduce"}
    has_it = [rank for rank in range(case.world_size) if not difference(right[rank], got[rank], 1e-5, 1e-6)]
    if not all((rank in roots or len(group) == 1) == (rank in has_it) for group in groups for rank in group):
        return found
    group = next(group for group in groups if found.rank in group)
    text = f"line {call.line} calls reduce: only its dst gets the sum, rank {found.rank} of the group {group} does not"
    return Finding("DTL-VALUE-ONE-RANK", text, found.rank, call.line or None)


def why(case: Case, given: Given, record: Record) -> str:
    """Of groups that are made in different orders: whether each rank begins with its own."""
    groups = case.params["groups"][case.world_size]
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


_VALUES = Check(
    on_rank,
    inputs,
    expected,
    cases={name: {"groups": groups} for name, groups in _GROUPS.items()},
    rules=[rules.never(*_OBJECTS, why="Tensors need no pickling.")],
    mistakes=mistakes,
    why=why,
)
CHECK = replace(_VALUES, expected=None, verify=verify)
