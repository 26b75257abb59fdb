"""ch01.repair_the_hang: ranks with different numbers of batches."""

from __future__ import annotations

from typing import Any

import torch

from dtlearn.grading import Case, Check, Given, Mistake

# Batches of each rank.
_BATCHES = {
    "different numbers of batches": {"batches": [2, 4, 1, 3]},
    "a rank without any": {"batches": [3, 0, 2, 0]},
}


def inputs(case: Case) -> Given:
    g = case.generator()
    given = []
    for rank in range(case.world_size):
        sizes = [2 + (rank + step) % 3 for step in range(case.params["batches"][rank])]
        given.append({"batches": [torch.rand(size, generator=g) + rank + 1 for size in sizes]})
    return given


def on_rank(answer: Any, batches: Any) -> Any:
    return answer(batches)


def expected(case: Case, given: Given) -> list[list[float]]:
    return [_sums([i["batches"] for i in given])] * case.world_size


def _sums(lists: list[list[torch.Tensor]], steps: int | None = None) -> list[float]:
    steps = max(map(len, lists)) if steps is None else steps
    return [float(sum(b[step].double().sum() for b in lists if step < len(b))) for step in range(steps)]


def mistakes(case: Case, given: Given) -> list[Mistake]:
    n, lists = case.world_size, [i["batches"] for i in given]
    fewest, most = min(map(len, lists)), max(map(len, lists))
    sums = _sums(lists)
    padded = [[*b, *b[-1:] * (most - len(b))] for b in lists]
    circled = [[b[step % len(b)] for step in range(most)] if b else [] for b in lists]
    return [
        Mistake(
            "DTL-VALUE-DROPPED",
            f"all ranks stop after step {fewest}, when the first has no batch left: {most - fewest} steps are lost",
            [_sums(lists, fewest)] * n,
        ),
        Mistake(
            "DTL-VALUE-REPEATED",
            "a rank without a batch added an old one again: it counts twice; such a rank must add zero",
            [_sums(padded)] * n,
        ),
        Mistake(
            "DTL-VALUE-REPEATED",
            "a rank without a batch began its list again: batches count twice; such a rank must add zero",
            [_sums(circled)] * n,
        ),
        Mistake(
            "DTL-VALUE-STEPS-ADDED",
            f"{sum(map(len, lists))} steps, of which the last are empty: the ranks' numbers of batches were added "
            f"up; the longest list has {most}, the maximum (dist.ReduceOp.MAX)",
            [sums + [0.0] * (sum(map(len, lists)) - most)] * n,
        ),
        Mistake(
            "DTL-VALUE-SHORT-LIST",
            "each rank returns only the steps for which it had a batch; the result must be the same on every rank",
            [sums[: len(b)] for b in lists],
        ),
        Mistake(
            "DTL-VALUE-LAST",
            "every step has the sum of the last one: the list holds one tensor several times, changed in every step",
            [sums[-1:] * most] * n,
        ),
        *(
            Mistake("DTL-VALUE-STALE", "each rank returns the sums of its own batches: nothing reached it", own)
            for own in ([_sums([b], most) for b in lists], [_sums([b]) for b in lists])
        ),
        Mistake(
            "DTL-VALUE-REPEATED",
            "a rank without a batch added the total of the step before: the tensor still held it; such a rank must "
            "add zero",
            [_with_old_totals(lists, most)] * n,
        ),
    ]


def _with_old_totals(lists: list[list[torch.Tensor]], steps: int) -> list[float]:
    """What comes of it if a rank without a batch hands in the tensor of the step before, which holds its total."""
    totals = [0.0]
    for step in range(steps):
        totals.append(sum(float(b[step].double().sum()) if step < len(b) else totals[-1] for b in lists))
    return totals[1:]


CHECK = Check(on_rank, inputs, expected, cases=_BATCHES, mistakes=mistakes)
