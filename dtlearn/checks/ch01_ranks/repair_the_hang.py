"""ch01.repair_the_hang: ranks with different numbers of batches, with none, and a step that sums to 0.

Equal numbers are no case: the program that hangs would be right there. Rank 0 has neither the fewest nor the most
batches of three.
"""

from __future__ import annotations

from typing import Any

import torch

from dtlearn.grading import Case, Check, Edit, Given
from dtlearn.runtime.record.record import Record
from dtlearn.runtime.words import listed

# `batches`: how many each rank has; `zero`: the step whose batches hold zeros only.
CASES: dict[str, dict[str, Any]] = {
    "different numbers of batches": {"batches": [2, 3, 1, 4]},
    "a rank without any batch": {
        "says": "a rank may have no batch at all: it takes part in every step, and adds zero",
        "batches": [3, 0, 2, 0],
    },
    "a step whose sum is 0": {
        "says": "a sum of 0 does not say that no rank has a batch left: the numbers of batches do",
        "batches": [3, 2, 1, 4],
        "zero": 1,
    },
}
MOST, STEPS = "op=dist.ReduceOp.MAX", "range(int(steps))"
OWN, ELSE = "batches[step].sum() if step < len(batches)", "else torch.zeros(())"
APPEND = "sums.append(total.item())\n    return sums\n    # END"
REDUCE = "torch.zeros(())\n        dist.all_reduce(total"
ALONE = REDUCE.replace("dist.all_reduce(", "float(")  # nothing is sent
EDITS = (
    Edit("the ranks' numbers of batches are added up, and the last steps are empty: there are as many steps as the "
         "longest list has batches, the maximum (dist.ReduceOp.MAX)", {MOST: MOST.replace("MAX", "SUM")}),
    Edit("there are as many steps as rank 0 has batches: as many as the longest list has are expected",
         {f"dist.all_reduce(steps, {MOST})": "dist.broadcast(steps, src=0)"}),
    Edit("all ranks stop when the first has no batch left: the batches of the others are lost",
         {MOST: MOST.replace("MAX", "MIN")}),
    Edit("the last step is missing, on every rank", {STEPS: "range(int(steps) - 1)"}),
    Edit("there is one step too many, an empty one at the end", {STEPS: "range(int(steps) + 1)"}),
    Edit("one sum over all steps: the result has a number for each step",
         {APPEND: APPEND.replace("return sums", "return [sum(sums)]")}),
    Edit("each step has the largest of the ranks' sums, not their sum: ReduceOp.MAX is for the number of steps",
         {REDUCE: f"{REDUCE}, {MOST}"}),
    Edit("the mean of each batch is added: its sum is expected", {OWN: OWN.replace("sum", "mean")}),
    Edit("the ranks' last batches are added together: a shorter list is to be filled up at its end, not in front",
         {OWN: "batches[step - late].sum() if step >= (late := int(steps) - len(batches))"}),
    Edit("the sums are those of the steps, each one step late, and the last one first: the index step - 1 is -1, the "
         "last batch, in step 0", {OWN: OWN.replace("[step]", "[step - 1]")}),
    Edit("each step has the sum of all steps up to it: the total was not set back to zero",
         {APPEND: APPEND.replace("total.item()", "total.item() + (sums[-1] if sums else 0.0)")}),
    Edit("a rank without a batch added its last one again: it counts twice; such a rank must add zero",
         {OWN: "batches[min(step, len(batches) - 1)].sum() if batches"}),
    Edit("a rank without a batch began its list again: batches count twice; such a rank must add zero",
         {OWN: "batches[step % len(batches)].sum() if batches"}),
    Edit("a rank without a batch added the total of the step before: the tensor still held it; such a rank must add "
         "zero", {f"{ELSE}\n": "else torch.tensor(sums[-1] if sums else 0.0)\n"}),
    Edit("a rank without any batch returns an empty list: the same list is expected on every rank",
         {APPEND: APPEND.replace("return sums", "return sums if batches else []")}),
    Edit("each rank returns only the steps for which it had a batch: the same list is expected on every rank",
         {APPEND: APPEND.replace("return sums", "return sums[: len(batches)]")}),
    Edit("every step has the sum of the last one: the list holds one tensor several times, changed in every step",
         {APPEND: APPEND.replace("return sums", "return sums[-1:] * len(sums)")}),
    Edit("each rank returns the sums of its own batches: nothing reached it", {REDUCE: ALONE}),
    Edit("each rank returns the sums of its own batches, in as many steps as it has: nothing reached it",
         {REDUCE: ALONE, STEPS: "range(len(batches))"}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    g, given = case.generator(), []
    for rank, number in enumerate(case.params["batches"][: case.world_size]):
        batches = [torch.rand(1 + (rank + step) % 2, generator=g) + rank + 1 for step in range(number)]
        given.append({"batches": [b * (step != case.params.get("zero")) for step, b in enumerate(batches)]})
    return given


def on_rank(answer: Any, batches: Any) -> Any:
    torch.use_deterministic_algorithms(True, warn_only=True)  # it fills torch.empty with NaN: luck does not help
    return answer(batches)


def expected(case: Case, given: Given) -> list[list[float]]:
    lists = [i["batches"] for i in given]
    steps = [[b[step] for b in lists if step < len(b)] for step in range(max(map(len, lists)))]
    return [[float(torch.cat(batches).double().sum()) for batches in steps]] * case.world_size


def why(case: Case, given: Given, record: Record) -> str:
    numbers = [len(i["batches"]) for i in given]
    return f"the ranks have {listed(numbers)} batches" if len(set(numbers)) > 1 else ""


CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    example=[
        {"batches": [torch.tensor([1.0, 2.0]), torch.tensor([5.0]), torch.tensor([4.0])]},
        {"batches": [torch.tensor([10.0])]},
    ],
    why=why,
)
