"""ch02.all_to_all: part d of rank s arrives in place s of rank d, all at the same time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from dtlearn.grading import Case, Check, Finding, Given, Mistake, Stress, compare, difference
from dtlearn.runtime.record.record import Record

from ..own_work import not_new
from ..rounds import most_rounds
from ._messages import POINT_TO_POINT, chunk_budget, unwritten

_CASES: dict[str, dict[str, Any]] = {
    "short": {"shape": [2], "dtype": torch.float32},
    "whole numbers in two dimensions": {"shape": [3, 2], "dtype": torch.int64},
    "long": {"shape": [280_000], "dtype": torch.float32},
}


def inputs(case: Case) -> Given:
    g, n = case.generator(), case.world_size
    shape, dtype = case.params["shape"], case.params["dtype"]
    return [
        {"parts": [(10 * torch.rand(shape, generator=g) + 100 * rank + 10 * d).to(dtype) for d in range(n)]}
        for rank in range(n)
    ]


def on_rank(answer: Any, parts: list[torch.Tensor]) -> Any:
    received = answer(parts)
    # One rank is enough to see it, and hides no other mistake: with more ranks the values tell what is wrong.
    alone = isinstance(received, list) and len(received) == 1 and received[0] is parts[0]
    return "a part itself" if alone else received


def expected(case: Case, given: Given) -> list[list[torch.Tensor]]:
    return [[i["parts"][rank] for i in given] for rank in range(case.world_size)]


def mistakes(case: Case, given: Given) -> list[Mistake]:
    n, ranks = case.world_size, range(case.world_size)
    part = [i["parts"] for i in given]
    if n == 1:
        return [_own_part_missing(part), not_new("part", n, "the rank's own entry in the list")]
    return [
        Mistake(
            "DTL-VALUE-SAME-PART",
            "every rank sent its own part, the one with its own number, to all: that is an all-gather; part d is for "
            "rank d",
            [[part[s][s] for s in ranks] for _ in ranks],
        ),
        Mistake(
            "DTL-VALUE-SAME-PART",
            "every rank sent its part 0 to all the others; part d is for rank d",
            [[part[s][0] if s != r else part[r][r] for s in ranks] for r in ranks],
        ),
        Mistake(
            "DTL-VALUE-PERMUTED",
            "in the order of arrival: on rank 0 first its own part, then that of its left neighbour, and so on; in "
            "place s must stand what came from rank s",
            [[part[(r - k) % n][r] for k in ranks] for r in ranks],
        ),
        Mistake(
            "DTL-VALUE-PERMUTED",
            "each part stands in the place of the rank that was sent to in that step; it came from another one, on "
            "the other side",
            [[part[(2 * r - s) % n][r] for s in ranks] for r in ranks],
        ),
        Mistake(
            "DTL-VALUE-OWN-PART",
            "the rank's own part is missing: nobody sends it, so it has to be copied",
            [[torch.zeros_like(part[r][r]) if s == r else part[s][r] for s in ranks] for r in ranks],
        ),
        _own_part_missing(part),
    ]


def _own_part_missing(part: list[list[torch.Tensor]]) -> Mistake:
    ranks = range(len(part))
    return Mistake(
        "DTL-VALUE-OWN-PART",
        "the rank's own part is missing: nobody sends it, so it has to be copied; its place is still as torch.empty "
        "left it",
        [[unwritten(part[r][r]) if s == r else part[s][r] for s in ranks] for r in ranks],
    )


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    """Compares. Of ranks that never exchanged a message the pair tells more than the values in its place."""
    found = compare(_VALUES, case, given, expected(case, given), got)
    if found is None or any(event.is_p2p and event.peer is None for event in record):
        return found
    sent = {(sender.rank, receiver.rank) for sender, receiver in record.messages()}
    for rank, right in enumerate(expected(case, given)):
        for source, part in enumerate(right):
            if source != rank and (source, rank) not in sent and difference(part, _entry(got[rank], source), 0, 0):
                text = f"rank {rank} has nothing from rank {source}: no message went from {source} to {rank}"
                if (rank, source) not in sent:
                    text += f", and none from {rank} to {source}: in no step do these two meet"
                return Finding("DTL-VALUE-PAIR", text, rank)
    return found


def _entry(received: Any, place: int) -> Any:
    return received[place] if isinstance(received, list | tuple) and place < len(received) else None


def _part_bytes(case: Case, given: Given) -> int:
    part = given[0]["parts"][0]
    return int(part.numel() * part.element_size())


_VALUES = Check(
    on_rank,
    inputs,
    expected,
    cases=_CASES,
    mistakes=mistakes,
    rules=[
        POINT_TO_POINT,
        chunk_budget(
            lambda case, given: (case.world_size - 1) * _part_bytes(case, given),
            whole=lambda case, given: case.world_size * _part_bytes(case, given),
        ),
        most_rounds("3*(N-1)"),
    ],
    payload=lambda case, given: case.world_size * _part_bytes(case, given),
    stress=Stress(poison=True),
)
CHECK = replace(_VALUES, expected=None, verify=verify)
