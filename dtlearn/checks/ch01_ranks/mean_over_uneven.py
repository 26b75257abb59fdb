"""ch01.mean_over_uneven: parts of equal lengths, of different ones, without numbers; and one that is long.

Whoever sends the numbers themselves sends far more than sums and counts where a part is long.
"""

from __future__ import annotations

from typing import Any

import torch

from dtlearn.grading import Case, Check, Edit, Finding, Given
from dtlearn.runtime.record.record import Record

LONG = 1000  # numbers; a few pickled ones take far less
# Numbers that each rank holds; `last`: how many the last rank does.
CASES: dict[str, dict[str, Any]] = {
    "parts of equal lengths": {"lengths": [2, 2, 2, 2], "sizes": (2, 3, 4)},
    "parts of different lengths": {
        "says": "the parts have different lengths: every number counts the same, on whichever rank it lies",
        "lengths": [1, 3, 2, 4],
    },
    "an empty part": {
        "says": "a part may be empty, and the mean of no numbers is NaN: it adds 0 to the sum and to the count",
        "lengths": [0, 2, 3, 1],
        "sizes": (2, 3, 4),
    },
    "a long part": {"lengths": [1, 3, 2, 4], "last": LONG, "sizes": (2, 3, 4)},
}
SUM, COUNT, REDUCE = "shard.sum()", "float(len(shard))", "dist.all_reduce(sum_and_count)"
DIVIDE, RESULT, PAIR = " / sum_and_count[1]", "return sum_and_count[0]", "    sum_and_count = torch.stack(["
EXTREME = "{0} = torch.tensor(len(shard)); dist.all_reduce({0}, dist.ReduceOp.{1})"
EDITS = (
    Edit("each rank returns the mean of its own numbers: those of the other ranks never reached it", {REDUCE: "pass"}),
    Edit("this is the sum of all numbers: divide it by how many they are, on all ranks together", {DIVIDE: ""}),
    Edit("the sum is right, but it is divided by the number of ranks, and not by the number of numbers",
         {DIVIDE: " / dist.get_world_size()"}),
    Edit("the sum is that of all ranks, but each rank divides it by the length of its own part",
         {DIVIDE: " / len(shard)"}),
    Edit("the sum of all ranks is divided by the length of the rank's own part times the number of ranks: that is the "
         "number of all numbers only if all parts are equally long",
         {DIVIDE: " / (len(shard) * dist.get_world_size())"}),
    Edit("each rank divides the sum of its own numbers by how many all ranks have: the sum never reached the others",
         {RESULT: RESULT.replace("sum_and_count[0]", SUM)}),
    Edit("the sums are averaged over the ranks, by ReduceOp.AVG or a division, and the counts are added up: the result "
         "is too small by the number of ranks", {REDUCE: f"{REDUCE}; sum_and_count[0] /= dist.get_world_size()"}),
    Edit("the ranks' sums lost what is behind the point: whole numbers were added up",
         {SUM: "torch.tensor(float(int(shard.sum())))"}),
    Edit("the numbers of the last rank stand in the place of every rank's: [tensor] * n holds one tensor n times",
         {REDUCE: "parts = [torch.empty(2)] * dist.get_world_size(); dist.all_gather(parts, sum_and_count); "
                  "sum_and_count = sum(parts)"}),
    Edit("the mean of the ranks' means: every rank counts the same, although they hold different amounts of data",
         {SUM: "shard.mean().nan_to_num()", COUNT: "1.0"}),
    Edit("every part was filled up to the length of the longest, and what fills it was counted too",
         {PAIR: f"    {EXTREME.format('longest', 'MAX')}\n{PAIR}", COUNT: "float(longest)"}),
    Edit("every part was cut to the length of the shortest: numbers were left out",
         {PAIR: f"    {EXTREME.format('shortest', 'MIN')}; shard = shard[: max(1, int(shortest))]\n{PAIR}"}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    lengths = list(case.params["lengths"][: case.world_size])
    lengths[-1] = case.params.get("last", lengths[-1])
    g = case.generator()
    # Each rank's numbers lie around another value: a mean of means is then far from the mean.
    return [{"shard": torch.randn(n, generator=g) + 3.0 * (rank + 1)} for rank, n in enumerate(lengths)]


def on_rank(answer: Any, shard: torch.Tensor) -> Any:
    return answer(shard)


def expected(case: Case, given: Given) -> list[torch.Tensor]:
    return [torch.cat([i["shard"] for i in given]).double().mean().float()] * case.world_size


def no_data(case: Case, given: Given, record: Record) -> Finding | None:
    """No rank sends its numbers: where they are many, the bytes show it."""
    for event in record if case.world_size > 1 else ():
        if event.nbytes >= 4 * LONG:
            text = (
                f"line {event.line} of rank {event.rank} hands {event.nbytes:,} bytes to {event.op}: these are the "
                "numbers themselves. Two numbers for each rank are enough, however long its part is"
            )
            return Finding("DTL-RULE-BYTES", text, event.rank, event.line or None)
    return None


CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    example=[{"shard": torch.tensor([1.0, 2.0, 3.0])}, {"shard": torch.tensor([10.0])}],
    rules=[no_data],
)
