"""ch01.rank_groups: each rank plays a job of another size."""

from __future__ import annotations

from typing import Any

from dtlearn.grading import Case, Check, Edit, Given

REFUSED = "if tp does not divide world_size, a ValueError is expected: a job must not drop ranks silently"
# (world_size, tp) by rank; in the first two the number of tp groups differs from their size on some rank.
CASES: dict[str, dict[str, Any]] = {
    "two ranks in each tp group": {"jobs": [(8, 2), (6, 2), (4, 2), (10, 2)]},
    "more than two ranks in each tp group": {
        "says": "tp may be larger than 2: a tp group has tp ranks, and there are tp dp groups",
        "jobs": [(6, 3), (12, 4), (8, 4), (12, 3)],
    },
    "an odd number of ranks": {
        "says": "an odd world_size is no reason to refuse it: what counts is whether tp divides it",
        "jobs": [(9, 3), (15, 3), (15, 5), (9, 3)],
    },
    "groups of one rank": {
        "says": "a group may have a single rank: every rank is in exactly one group of each kind",
        "jobs": [(4, 4), (3, 1), (1, 1), (6, 6)],
    },
    "tp does not divide the ranks": {"says": REFUSED, "jobs": [(8, 3), (7, 2), (10, 4), (2, 3)]},
}
TP, TP_STARTS = '"tp": [list(range(first', "for first in range(0, world_size, tp)"
DP, DP_RANKS, DP_STARTS = '"dp": [list(range(place', "list(range(place, world_size, tp))", "for place in range(tp)"
COPIES, RAISE, RETURN = "world_size // tp", "raise ValueError(", "    return {"
SWAPPED = "the tp groups are strided and the dp groups consecutive: it is the other way round"
EDITS = (
    Edit(SWAPPED, {TP: TP.replace("tp", "dp"), DP: DP.replace("dp", "tp")}),
    Edit(SWAPPED, {TP: TP.replace("tp", "dp"), DP: DP.replace("dp", "tp"), RETURN: f"    tp = {COPIES}\n{RETURN}"}),
    Edit("tp was taken for the number of tp groups: it is the number of ranks in each",
         {RETURN: f"    tp = {COPIES}\n{RETURN}"}),
    Edit("the dp groups are consecutive ranks, like the tp groups: ranks 0 and 1 would then share both groups",
         {DP_RANKS: f"list(range(place, place + {COPIES}))",
          DP_STARTS: f"for place in range(0, world_size, {COPIES})"}),
    Edit("the ranks of a dp group lie world_size / tp apart: those with the same place in their tp groups lie tp "
         "apart, and there are tp such groups",
         {DP_RANKS: f"list(range(place, world_size, {COPIES}))", DP_STARTS: f"for place in range({COPIES})"}),
    Edit("there are as many dp groups as copies of the model, world_size / tp: there is one for each place in a tp "
         "group, tp of them", {DP_STARTS: f"for place in range({COPIES})"}),
    Edit("every dp group has tp ranks: it has one rank of each copy of the model, world_size / tp of them",
         {DP_RANKS: "list(range(place, place + tp * tp, tp))"}),
    Edit("only the first group of each kind is returned: each value is the list of all groups of that kind",
         {f"{TP_STARTS}]": f"{TP_STARTS}][0]", f"{DP_STARTS}]": f"{DP_STARTS}][0]"}),
    Edit("the groups of a kind are expected in the order of their first ranks, and are in the reverse one",
         {f"{TP_STARTS}]": f"{TP_STARTS}][::-1]"}),
    Edit("the groups of a single rank were left out: every rank is in exactly one group of each kind",
         {TP_STARTS: f"{TP_STARTS} if tp > 1", DP_STARTS: f"{DP_STARTS} if world_size > tp"}),
    Edit("an AssertionError where a ValueError is expected: `python -O` leaves assert statements out",
         {RAISE: "raise AssertionError("}),
    Edit("a ValueError was returned, not raised: write `raise`", {RAISE: "return ValueError("}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    return [dict(zip(("world_size", "tp"), job, strict=True)) for job in case.params["jobs"]]


def on_rank(answer: Any, world_size: int, tp: int) -> Any:
    fits = world_size % tp == 0
    try:
        groups = answer(world_size, tp)
    except NotImplementedError:  # that of the stub
        raise
    except ValueError:
        return {"raised": "a ValueError", "groups": None}
    except Exception as error:
        if fits:
            raise
        return {"raised": type(error).__name__, "groups": None}
    if groups is ValueError or isinstance(groups, ValueError):
        return {"raised": "nothing, a ValueError was returned", "groups": None}
    return {"raised": "nothing", "groups": groups if fits else None}


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    """The ranks of a job in a table, one copy of the model a row: the tp groups are its rows, the dp groups columns."""
    results: list[dict[str, Any]] = []
    for size, tp in (job.values() for job in given):
        rows = [[rank for rank in range(size) if rank // tp == copy] for copy in range(size // tp)]
        groups = {"tp": rows, "dp": [list(column) for column in zip(*rows, strict=True)]}
        results.append(
            {"raised": "a ValueError", "groups": None} if size % tp else {"raised": "nothing", "groups": groups}
        )
    return results


def task_text(case: Case, given: Given, rank: int) -> str:
    return f"world_size = {given[rank]['world_size']}, tp = {given[rank]['tp']}"


CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    example=[{"world_size": 6, "tp": 2}],
    task_text=task_text,
)
