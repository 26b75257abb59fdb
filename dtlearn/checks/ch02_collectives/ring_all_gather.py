"""ch02.ring_all_gather: the tensors of all ranks, in order, on every rank."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import torch

from dtlearn.grading import Case, Check, Finding, Given, Mistake, Stress, compare, payload_bytes
from dtlearn.runtime.record.record import Record

from ..own_work import not_new
from ..rounds import beside_the_ring, in_a_ring
from ._messages import POINT_TO_POINT, chunk_budget, unwritten

_CASES: dict[str, dict[str, Any]] = {
    "short": {"shape": [3], "dtype": torch.float32},
    "whole numbers in two dimensions": {"shape": [2, 3], "dtype": torch.int64},
    "long": {"shape": [600, 500], "dtype": torch.float32},
}


def inputs(case: Case) -> Given:
    g, dtype = case.generator(), case.params["dtype"]
    shape = case.params["shape"]
    return [{"x": (100 * torch.rand(shape, generator=g) + 100 * rank + 1).to(dtype)} for rank in range(case.world_size)]


def on_rank(answer: Any, x: torch.Tensor) -> Any:
    gathered = answer(x)
    # One rank is enough to see it, and hides no other mistake: with more ranks the values tell what is wrong.
    alone = isinstance(gathered, list) and len(gathered) == 1 and gathered[0] is x
    return "x itself" if alone else gathered


def expected(case: Case, given: Given) -> list[list[torch.Tensor]]:
    return [[i["x"] for i in given]] * case.world_size


def mistakes(case: Case, given: Given) -> list[Mistake]:
    n = case.world_size
    xs, ranks = [i["x"] for i in given], range(n)
    own_missing = Mistake(
        "DTL-VALUE-OWN",
        "in the rank's own place its own x is missing: nobody sends it there, so it has to be copied",
        [[unwritten(xs[r]) if c == r else xs[c] for c in ranks] for r in ranks],
    )
    if n == 1:
        return [own_missing, not_new("x", n, "the rank's own entry in the list")]

    def own_and(other: Any) -> list[list[torch.Tensor]]:
        """On each rank its own x in its own place, and `other(rank, place)` in the others."""
        return [[xs[r] if c == r else other(r, c) for c in ranks] for r in ranks]

    return [
        own_missing,
        Mistake(
            "DTL-VALUE-PERMUTED",
            "in the order of arrival: rank 0 has its own x first, then that of its left neighbour, and so on; in "
            "place r must stand the x of rank r",
            [[xs[(r - k) % n] for k in ranks] for r in ranks],
        ),
        Mistake(
            "DTL-VALUE-PERMUTED",
            "the places run the wrong way round: what comes in step k, from 0, is the x of rank - k - 1 and stands in "
            "place rank + k + 1",
            [[xs[(2 * r - c) % n] for c in ranks] for r in ranks],
        ),
        *(
            Mistake(
                "DTL-VALUE-SHORT",
                f"one step too few: the x of the right neighbour never came (place 1 on rank 0, 0 on rank {n - 1})",
                own_and(lambda r, c, before=before: before if c == (r + 1) % n else xs[c]),
            )
            for before in (torch.zeros_like(xs[0]), unwritten(xs[0]))
        ),
        Mistake(
            "DTL-VALUE-REPEATED",
            "the x of the left neighbour stands in every place but the rank's own: all sent their own x in every "
            "step; after the first step pass on what came last",
            own_and(lambda r, c: xs[(r - 1) % n]),
        ),
        *(
            Mistake(
                "DTL-VALUE-ALIASED",
                "on rank 0 the places 1 and 3 hold one and the same tensor: what came first was overwritten by what "
                "came in the third step, into the same of two buffers; each place needs its own",
                own_and(lambda r, c: xs[(r - 1 - max(k for k in range((r - c - 1) % n, n - 1, 2))) % n]),
            )
            for _ in range(n > 3)
        ),
        Mistake(
            "DTL-VALUE-ALIASED",
            "what came last stands in every place but the rank's own: they are one and the same tensor, which was "
            "received into again and again; each place needs its own",
            own_and(lambda r, c: xs[(r + 1) % n]),
        ),
    ]


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    """Compares. Where a rank received less than the others, that tells more than what is missing."""
    found = compare(_VALUES, case, given, expected(case, given), got)
    arrived = Counter(receiver.rank for _, receiver in record.messages())
    fewest = min(range(case.world_size), key=lambda rank: arrived[rank])
    if found is None or arrived[fewest] >= min(case.world_size - 1, max(arrived.values(), default=0)):
        return found
    text = f"rank {fewest} received {arrived[fewest]} of {case.world_size - 1} messages: in a ring every rank sends, "
    text += f"the last one, {case.world_size - 1}, to rank 0, and every rank receives, rank 0 from the last one"
    return Finding("DTL-VALUE-MISSING", text, fewest)


_VALUES = Check(
    on_rank,
    inputs,
    expected,
    cases=_CASES,
    mistakes=mistakes,
    rules=[
        POINT_TO_POINT,
        chunk_budget(
            lambda case, given: (case.world_size - 1) * payload_bytes(given, "x"),
            whole=lambda case, given: case.world_size * payload_bytes(given, "x"),
        ),
        in_a_ring(),
    ],
    payload=lambda case, given: case.world_size * payload_bytes(given, "x"),
    why=beside_the_ring,
    stress=Stress(poison=True),
)
CHECK = replace(_VALUES, expected=None, verify=verify)
