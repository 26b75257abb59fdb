"""ch10.gpipe: the actions of every rank of a pipeline, as a text for each."""

from __future__ import annotations

from typing import Any

from dtlearn.grading import Case, Check, Edit, Given, rules

from ._orders import inputs, on_rank, why

CASES: dict[str, dict[str, Any]] = {
    "as many micro-batches as ranks": {"p": 2, "m": 2},
    "more micro-batches than ranks": {"p": 2, "m": 3, "says": "a rank makes both passes of all micro-batches"},
    "fewer micro-batches than ranks": {"p": 4, "m": 2, "says": "there are fewer micro-batches than ranks here"},
    "many micro-batches": {"p": 2, "m": 16, "says": "there may be any number of micro-batches"},
}
YIELD, BOTH = "yield rank, op, microbatch", 'for op in "FB":\n        for microbatch in range(num_microbatches):'
COUNT = "range(num_microbatches)"
EDITS = (
    Edit("a rank begins its backward passes before its forward passes are done, so 0B0 comes before 0F1: in GPipe's "
         "schedule all forward passes come first",
         {BOTH: 'for microbatch in range(num_microbatches):\n        for op in "FB":'}),
    Edit("the backward passes come from the last micro-batch to the first; they too begin with micro-batch 0",
         {YIELD: 'yield rank, op, microbatch if op == "F" else num_microbatches - 1 - microbatch'}),
    Edit("the number of micro-batches follows that of the ranks: the third argument says how many there are",
         {COUNT: "range(num_ranks)"}),
    Edit("the micro-batches are numbered from 1: the first one is 0", {YIELD: f"{YIELD} + 1"}),
    Edit("the last micro-batch is missing", {COUNT: "range(num_microbatches - 1)"}),
    Edit("the backward passes are missing", {'"FB"': '"F"'}),
    Edit("every action is of stage 0: the number comes from the argument rank, not from the process that this runs in",
         {YIELD: "yield 0, op, microbatch"}),
    Edit("an action is (stage, op, microbatch), in this order", {YIELD: "yield rank, microbatch, op"}),
    Edit("an action is expected to be a tuple, such as (2, 'F', 0); here it is a list, such as [2, 'F', 0]",
         {YIELD: "yield [rank, op, microbatch]"}),
)  # fmt: skip


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    p, m = given[0]["num_ranks"], given[0]["num_microbatches"]
    return [{f"rank {r}": " ".join(f"{r}{op}{k}" for op in "FB" for k in range(m)) for r in range(p)}]


CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    example=[{"num_ranks": 2, "num_microbatches": 3}],
    why=why,
    rules=[rules.most_messages("0")],
)
