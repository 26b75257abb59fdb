"""ch10.one_f_one_b: the actions of every rank of a pipeline, as a text for each."""

from __future__ import annotations

from typing import Any

from dtlearn.grading import Case, Check, Edit, Given, rules

from ._orders import inputs, on_rank, why

CASES: dict[str, dict[str, Any]] = {
    "3 ranks and 4 micro-batches": {"p": 3, "m": 4},
    "fewer micro-batches than ranks": {
        "p": 4,
        "m": 2,
        "says": "with fewer micro-batches than ranks a rank makes fewer than p - rank forward passes at first: there "
        "are only m",
    },
    "many ranks": {
        "p": 12,
        "m": 14,
        "says": "on rank r as many micro-batches are live as there are ranks from r to the last, however many",
    },
}
# What stands before the first backward pass, of the worked solution: one forward pass less than are live at once.
WARM_UP = "min(num_ranks - 1 - rank, num_microbatches)"
COOL_DOWN = "range(num_microbatches - warm_up, num_microbatches)"
FIRST = "a rank makes p - rank forward passes before its first backward pass, or all m if there are fewer: here it is "
EDITS = (
    Edit(f"{FIRST}one too few, such as 2 on rank 0 of 3, where 3 may be live",
         {WARM_UP: "max(0, min(num_ranks - 2 - rank, num_microbatches))"}),
    Edit(f"{FIRST}one too many, such as 4 on rank 0 of 3, where 3 may be live",
         {WARM_UP: "min(num_ranks - rank, num_microbatches)"}),
    Edit(f"{FIRST}all, as in GPipe's schedule", {WARM_UP: "num_microbatches"}),
    Edit(f"{FIRST}one on every rank, so the ranks work one after the other", {WARM_UP: "0"}),
    Edit(f"{FIRST}as many on every rank as on rank 0", {WARM_UP: "min(num_ranks - 1, num_microbatches)"}),
    Edit(f"{FIRST}as many as the opposite rank should make: rank 0 makes one, the last rank most",
         {WARM_UP: "min(rank, num_microbatches)"}),
    Edit(f"{FIRST}p - 1 on every rank", {WARM_UP: "max(0, min(num_ranks - 2, num_microbatches))"}),
    Edit(f"{FIRST}2 (p - rank) - 1, twice as many as can be on their way",
         {WARM_UP: "min(2 * (num_ranks - 1 - rank), num_microbatches)"}),
    Edit(f"{FIRST}p - rank even where there are fewer micro-batches",
         {WARM_UP: "num_ranks - 1 - rank",
          COOL_DOWN: "range(max(0, num_microbatches - warm_up), num_microbatches)"}),
    Edit(f"{FIRST}p - rank even where there are fewer micro-batches, and at the end come backward passes of "
         "micro-batches that do not exist", {WARM_UP: "num_ranks - 1 - rank"}),
    Edit("after the first backward pass as many more may be live as are done: a forward pass goes next; here a rank "
         "drains, with backward passes alone, and fills again",
         {f"warm_up = {WARM_UP}": "most = num_ranks - rank\n    yield from ((rank, op, k) for first in range(0, "
          "num_microbatches, most) for op in 'FB' for k in range(first, min(first + most, num_microbatches)))\n"
          "    return"}),
    Edit("the backward passes that are left at the end are missing",
         {COOL_DOWN: "range(0)"}),
    Edit("the backward passes at the end begin with micro-batch 0 again: go on with the first that is left",
         {COOL_DOWN: "range(warm_up)"}),
    Edit("between warm-up and cool-down a backward pass comes first: with p - rank - 1 live there is room for a "
         "forward pass before it",
         {'yield rank, "F", microbatch\n        yield rank, "B", microbatch - warm_up':
          'yield rank, "B", microbatch - warm_up\n        yield rank, "F", microbatch'}),
    Edit("the backward passes are those of the newest micro-batch: the oldest goes first, so that they begin with 0",
         {"microbatch - warm_up\n": "microbatch\n", COOL_DOWN: "reversed(range(warm_up))"}),
)  # fmt: skip


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    """A forward pass while fewer micro-batches are live than may be, else a backward pass."""
    p, m = given[0]["num_ranks"], given[0]["num_microbatches"]
    made = {}
    for rank in range(p):
        actions, forward, backward = [], 0, 0
        while backward < m:
            if forward < m and forward - backward < p - rank:
                actions.append(f"{rank}F{forward}")
                forward += 1
            else:
                actions.append(f"{rank}B{backward}")
                backward += 1
        made[f"rank {rank}"] = " ".join(actions)
    return [made]


CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    example=[{"num_ranks": 3, "num_microbatches": 4}],
    why=why,
    rules=[rules.most_messages("0")],
)
