"""ch02.ring_all_gather: the tensors of all ranks, in order, on every rank."""

from __future__ import annotations

from typing import Any

import torch

from dtlearn.grading import Case, Check, Given, Mistake, Stress, payload_bytes

from ..rounds import in_a_ring
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
    return answer(x)


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
        return [own_missing]

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
        Mistake(
            "DTL-VALUE-ALIASED",
            "what came last stands in every place but the rank's own: they are one and the same tensor, which was "
            "received into again and again; each place needs its own",
            own_and(lambda r, c: xs[(r + 1) % n]),
        ),
    ]


CHECK = Check(
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
    stress=Stress(poison=True),
)
