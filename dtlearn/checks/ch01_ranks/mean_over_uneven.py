"""ch01.mean_over_uneven: parts of different lengths, some of them empty.

One part is long: whoever sends the numbers themselves then sends far more than sums and counts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from dtlearn.grading import Case, Check, Finding, Given, Mistake
from dtlearn.grading.judging.compare import compare
from dtlearn.runtime.record.record import Record

# Numbers that each rank holds.
_LENGTHS: dict[str, dict[str, Any]] = {
    "uneven parts": {"lengths": [3, 7, 1, 5]},
    "an empty part": {"lengths": [4, 0, 6, 1]},
    "all on the last rank": {"lengths": [0, 0, 0, 0], "last": 5000},
}


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


def mistakes(case: Case, given: Given) -> list[Mistake]:
    n, shards = case.world_size, [i["shard"] for i in given]
    total, means = torch.cat(shards).sum(), torch.stack([s.mean() for s in shards])
    lengths = ", ".join(str(len(s)) for s in shards)
    shortest, longest, count = min(map(len, shards)), max(map(len, shards)), sum(map(len, shards))
    # With one rank the two mistakes give the same value, and the text has to fit both.
    undivided = f"this is the sum of all numbers: it is not divided by how many they are, {count}"
    if n == 1:
        undivided += "; divided by the number of ranks, 1, it stays the same"
    cut = torch.stack([torch.tensor([float(int(s.sum())), float(len(s))]) for s in shards]).sum(0)
    return [
        Mistake("DTL-VALUE-COUNT", undivided, [total] * n),
        Mistake(
            "DTL-VALUE-STALE",
            "each rank returns the mean of its own numbers: those of the other ranks never reached it",
            [s.mean() for s in shards],
        ),
        Mistake(
            "DTL-VALUE-LAST",
            "the numbers of the last rank stand in the place of every rank's: [tensor] * n holds one tensor n times",
            [shards[-1].mean()] * n,
        ),
        Mistake(
            "DTL-VALUE-WHOLE",
            "the ranks' sums lost what is behind the point: whole numbers were added up",
            [cut[0] / cut[1]] * n,
        ),
        Mistake(
            "DTL-VALUE-MEAN-OF-MEANS",
            f"the mean of the ranks' means: every rank counts the same, although they hold {lengths} numbers",
            [means.mean()] * n,
        ),
        Mistake(
            "DTL-VALUE-COUNT",
            f"the sum is right, but it is divided by the number of ranks, {n}, and not by the number of numbers",
            [total / n] * n,
        ),
        Mistake(
            "DTL-VALUE-LOCAL-COUNT",
            "the sum is that of all ranks, but each rank divides it by the length of its own part",
            [total / len(s) for s in shards],
        ),
        Mistake(
            "DTL-VALUE-LOCAL-COUNT",
            f"the sum of all ranks is divided by the length of the rank's own part times the number of ranks, {n}: "
            "that is how many numbers there are only if all parts are equally long",
            [total / (n * len(s)) for s in shards],
        ),
        Mistake(
            "DTL-VALUE-LOCAL-SUM",
            f"each rank divides the sum of its own numbers by how many all ranks have, {count}: the sum never reached "
            "the others",
            [s.sum() / count for s in shards],
        ),
        Mistake(
            "DTL-VALUE-PADDED",
            f"every part was filled up to the length of the longest, {longest}, and what fills it was counted too",
            [total / (n * longest)] * n,
        ),
        Mistake(
            "DTL-VALUE-CUT",
            f"every part was cut to the length of the shortest, {shortest}: numbers were left out",
            [torch.cat([s[:shortest] for s in shards]).mean()] * n,
        ),
    ]


def no_data(case: Case, given: Given, record: Record) -> Finding | None:
    """Did a rank send its numbers? They are long in one case only; a few pickled numbers are far below that."""
    for event in record if case.world_size > 1 else ():
        if event.nbytes >= 4 * max(1000, *(len(i["shard"]) for i in given)):
            text = (
                f"line {event.line} of rank {event.rank} hands {event.nbytes:,} bytes to {event.op}: these are the "
                "numbers themselves. Two numbers for each rank are enough, however long its part is"
            )
            return Finding("DTL-RULE-DATA", text, event.rank, event.line or None)
    return None


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    """Compares. Of a result that is too small by the number of ranks, the record may show which call divided."""
    found, n = compare(_VALUES, case, given, expected(case, given), got), case.world_size
    call = next((event for event in record if event.detail.get("reduce_op") == "AVG"), None)
    small = [value / n for value in expected(case, given)]
    if found is None or call is None or compare(replace(_VALUES, mistakes=None), case, given, small, got):
        return found
    text = f"the result is exactly 1/{n} of the reference on every rank; {n} is the world size"
    advice = f"Line {call.line} calls {call.op} with ReduceOp.AVG: that divides by the number of ranks."
    return Finding("DTL-VALUE-FACTOR", text, found.rank, call.line or None, advice)


_VALUES = Check(on_rank, inputs, expected, cases=_LENGTHS, mistakes=mistakes, rules=[no_data])
CHECK = replace(_VALUES, expected=None, verify=verify)
