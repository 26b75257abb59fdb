"""ch01.repair_the_hang: ranks with different numbers of batches.

Rank 0 has neither the fewest nor the most of three. A step of the second case sums to 0 and is not the last: a sum says
nothing of whether there are batches left.
"""

from __future__ import annotations

from typing import Any

import torch

from dtlearn.grading import Case, Check, Given, Mistake
from dtlearn.runtime.words import counted

# Batches of each rank.
_BATCHES: dict[str, dict[str, Any]] = {
    "different numbers of batches": {"batches": [3, 2, 4, 1]},
    "a rank without any": {"batches": [3, 0, 2, 0], "zero": 1},
}


def inputs(case: Case) -> Given:
    g = case.generator()
    given = []
    for rank in range(case.world_size):
        sizes = [2 + (rank + step) % 3 for step in range(case.params["batches"][rank])]
        batches = [torch.rand(size, generator=g) + rank + 1 for size in sizes]
        given.append({"batches": [b * (step != case.params.get("zero")) for step, b in enumerate(batches)]})
    return given


def on_rank(answer: Any, batches: Any) -> Any:
    torch.use_deterministic_algorithms(True, warn_only=True)  # it fills torch.empty with NaN: luck does not help
    return answer(batches)


def expected(case: Case, given: Given) -> list[list[float]]:
    return [_sums([i["batches"] for i in given])] * case.world_size


def _sums(lists: list[list[torch.Tensor]], steps: int | None = None) -> list[float]:
    steps = max(map(len, lists)) if steps is None else steps
    return [float(sum(b[step].double().sum() for b in lists if step < len(b))) for step in range(steps)]


def mistakes(case: Case, given: Given) -> list[Mistake]:
    n, lists = case.world_size, [i["batches"] for i in given]
    fewest, most = min(map(len, lists)), max(map(len, lists))
    sums, first, zero = _sums(lists), len(lists[0]), case.params.get("zero")
    means = [[batch.mean() for batch in b] for b in lists]
    running = [sum(sums[: step + 1]) for step in range(most)]
    own_sums = [_sums([b], most) for b in lists]
    behind = [[torch.zeros(1)] * (most - len(b)) + b for b in lists]
    padded = [[*b, *b[-1:] * (most - len(b))] for b in lists]
    circled = [[b[step % len(b)] for step in range(most)] if b else [] for b in lists]
    return [
        Mistake(
            "DTL-VALUE-DROPPED",
            f"all ranks stop when the first has no batch left: of {counted(most, 'step')}, {most - fewest} lost",
            [_sums(lists, fewest)] * n,
        ),
        Mistake(
            "DTL-VALUE-DROPPED",
            f"{counted(first, 'step')}, as many as rank 0 has batches; the longest list has {most}",
            [_sums(lists, first)] * n,
        ),
        *(
            [
                Mistake(
                    "DTL-VALUE-DROPPED",
                    f"all ranks stop before step {zero}, whose sum is 0, although there are batches left: a sum of 0 "
                    "does not say that no rank has a batch",
                    [sums[:end]] * n,
                )
                for end in (zero, zero + 1)
            ]
            if zero is not None
            else []
        ),
        Mistake(
            "DTL-VALUE-DROPPED",
            "the last step is missing, on every rank",
            [sums[:-1]] * n,
        ),
        Mistake(
            "DTL-VALUE-STEPS",
            f"{most + 1} steps, the last of them empty: one too many",
            [[*sums, 0.0]] * n,
        ),
        Mistake(
            "DTL-VALUE-STEPS",
            "one sum over all steps; the result has a number for each step",
            [[sum(sums)]] * n,
        ),
        Mistake(
            "DTL-VALUE-LARGEST",
            "each step has the largest of the ranks' sums, not their sum: ReduceOp.MAX is for the number of steps",
            [[max(step) for step in zip(*own_sums, strict=True)]] * n,
        ),
        Mistake(
            "DTL-VALUE-MEANS",
            "the mean of each batch was added; its sum is asked",
            [_sums(means)] * n,
        ),
        Mistake(
            "DTL-VALUE-SHIFTED",
            "the ranks' last batches were added together: a shorter list is to be filled up at its end, not in front",
            [_sums(behind)] * n,
        ),
        Mistake(
            "DTL-VALUE-SHIFTED",
            "the sums are those of the steps, each one step late, and the last one first: the index step - 1 is -1, "
            "the last batch, in step 0",
            [[*sums[-1:], *sums[:-1]]] * n,
        ),
        Mistake(
            "DTL-VALUE-RUNNING",
            "each step has the sum of all steps up to it: the total was not set back to zero",
            [running] * n,
        ),
        Mistake(
            "DTL-VALUE-TWICE",
            "a rank without a batch added an old one again: it counts twice; such a rank must add zero",
            [_sums(padded)] * n,
        ),
        Mistake(
            "DTL-VALUE-TWICE",
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
            for own in (own_sums, [_sums([b]) for b in lists])
        ),
        Mistake(
            "DTL-VALUE-TWICE",
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
