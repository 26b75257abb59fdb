"""ch10.gpipe: the actions of every rank of a pipeline under a cap of live micro-batches, as a text for each."""

from __future__ import annotations

from typing import Any

from dtlearn.grading import Case, Check, Edit, Given, rules

from ._orders import inputs, on_rank, why

CASES: dict[str, dict[str, Any]] = {
    "memory for all micro-batches": {"p": 2, "m": 3, "most_live": 3},
    "memory for half of them": {
        "p": 2, "m": 6, "most_live": 3, "says": "after three backward passes memory is free for three more"},
    "a last group that is smaller": {
        "p": 2, "m": 5, "most_live": 2, "says": "the cap does not divide the number of micro-batches"},
    "memory for more than there are": {
        "p": 4, "m": 2, "most_live": 5, "says": "there are fewer micro-batches than may be live"},
    "memory for one": {"p": 2, "m": 3, "most_live": 1, "says": "only one micro-batch may be live at a time"},
    "many micro-batches": {"p": 2, "m": 34, "most_live": 4, "says": "there may be any number of micro-batches"},
}  # fmt: skip
YIELD = "yield rank, op, microbatch"
BOTH = 'for op in "FB":\n            for microbatch in range(start, end):'
END, STARTS = "min(start + most_live, num_microbatches)", "range(0, num_microbatches, most_live)"
EDITS = (
    Edit("one micro-batch at a time, although more may be live: all forward passes of a group come first",
         {BOTH: 'for microbatch in range(start, end):\n            for op in "FB":'}),
    Edit("a forward pass goes as soon as one micro-batch is free. The cap is kept, and it is the idea of the next "
         "section; GPipe makes all backward passes of a group before it begins the next one",
         {f"    for start in {STARTS}": "    most = min(most_live, num_microbatches)\n    for k in range("
          "num_microbatches + most):\n        both = ('B', k - most), ('F', k)\n        yield from ((rank, op, at) for "
          f"op, at in both if 0 <= at < num_microbatches)\n    return\n    for start in {STARTS}"}),
    Edit("all m micro-batches are live at once: only as many as the cap allows may be",
         {STARTS: "range(1)", END: "num_microbatches"}),
    Edit("the backward passes of a group come from its last micro-batch to its first; they too begin with the first",
         {YIELD: 'yield rank, op, microbatch if op == "F" else start + end - 1 - microbatch'}),
    Edit("the number of micro-batches follows that of the ranks: the third argument says how many there are",
         {STARTS: "range(0, num_ranks, most_live)", END: "min(start + most_live, num_ranks)"}),
    Edit("as many micro-batches as ranks are live: the fourth argument says how many may be",
         {STARTS: "range(0, num_microbatches, num_ranks)", END: "min(start + num_ranks, num_microbatches)"}),
    Edit("the micro-batches are numbered from 1: the first one is 0", {YIELD: f"{YIELD} + 1"}),
    Edit("the micro-batches of the last, smaller group are missing",
         {STARTS: "range(0, num_microbatches - num_microbatches % most_live, most_live)"}),
    Edit("the last group goes on after micro-batch m - 1: there it ends", {END: "start + most_live"}),
    Edit("each group begins with micro-batch 0 again: the next one begins where the last one ended",
         {YIELD: "yield rank, op, microbatch - start"}),
    Edit("the backward passes are missing", {'"FB"': '"F"'}),
    Edit("every action is of stage 0: the number comes from the argument rank, not from the process that this runs in",
         {YIELD: "yield 0, op, microbatch"}),
    Edit("an action is (stage, op, microbatch), in this order", {YIELD: "yield rank, microbatch, op"}),
    Edit("an action is expected to be a tuple, such as (2, 'F', 0); here it is a list, such as [2, 'F', 0]",
         {YIELD: "yield [rank, op, microbatch]"}),
)  # fmt: skip


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    """The actions by what is live: forward passes while there is room in the group, then its backward passes."""
    p, m, most = (given[0][name] for name in ("num_ranks", "num_microbatches", "most_live"))
    group, actions = list[int](), list[str]()
    for k in range(m):
        group.append(k)
        actions.append(f"F{k}")
        if len(group) == most or k == m - 1:
            actions += [f"B{live}" for live in group]
            group.clear()
    return [{f"rank {rank}": " ".join(f"{rank}{action}" for action in actions) for rank in range(p)}]


CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    example=[{"num_ranks": 2, "num_microbatches": 3, "most_live": 2}],
    why=why,
    rules=[rules.most_messages("0")],
)
