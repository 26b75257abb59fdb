"""ch02.repair_the_ring: tensors travel around a ring, short and long, and everybody adds them up."""

from __future__ import annotations

from typing import Any

import torch

from dtlearn.grading import Case, Check, Given, Mistake, Stress

from ..own_work import not_new
from ._messages import POINT_TO_POINT, total

_CASES: dict[str, dict[str, Any]] = {
    "a short tensor": {"shape": [2, 2]},
    "a long tensor": {"shape": [600, 500]},
}


def inputs(case: Case) -> Given:
    g, shape = case.generator(), case.params["shape"]
    return [{"x": 100 * torch.rand(shape, generator=g) + rank + 1} for rank in range(case.world_size)]


def on_rank(answer: Any, x: torch.Tensor) -> Any:
    total = answer(x)
    return "x itself" if total is x else total


def expected(case: Case, given: Given) -> list[torch.Tensor]:
    return [total([i["x"] for i in given])] * case.world_size


def mistakes(case: Case, given: Given) -> list[Mistake]:
    n, xs = case.world_size, [i["x"] for i in given]
    ranks = range(n)
    or_token = "; or what is returned is the last token, and not the total" if n == 2 else ""
    own_missing = Mistake(
        "DTL-VALUE-MISSING",
        f"the rank's own x is missing in its sum{or_token}",
        [sum((x for s, x in enumerate(xs) if s != r), torch.zeros_like(xs[r])) for r in ranks],
    )
    if n == 1:
        return [own_missing, not_new("x", n)]
    totals = list(xs)
    for _ in range(n - 1):
        totals = [totals[r] + totals[r - 1] for r in ranks]
    lost = [
        Mistake(
            "DTL-VALUE-OVERWRITTEN",
            f"rank {1 - r} got its own x back, not that of rank {r}: rank {r} received into the tensor that it had yet "
            "to send",
            [2 * xs[s] if s != r else total(xs) for s in ranks],
        )
        for r in (ranks if n == 2 else ())
    ]
    return [
        own_missing,
        *lost,
        Mistake(
            "DTL-VALUE-MISSING",
            "one step too few: the x of the right neighbour, which has the longest way, is missing",
            [total([x for s, x in enumerate(xs) if s != (r + 1) % n]) for r in ranks],
        ),
        Mistake(
            "DTL-VALUE-TWICE",
            "one step too many: each rank's own x came round and counts twice",
            [total([*xs, xs[r]]) for r in ranks],
        ),
        Mistake(
            "DTL-VALUE-STEP",
            "the rank's own x counts twice, and that of its right neighbour, which comes last, is missing: what is "
            "added is the token that was sent, not the one that came",
            [total([x for s, x in enumerate(xs) if s != (r + 1) % n] + [xs[r]]) for r in ranks],
        ),
        Mistake(
            "DTL-VALUE-SOURCE",
            "what is returned is the x of the right neighbour, the last token to come, and not the total",
            [xs[(r + 1) % n] for r in ranks],
        ),
        *(
            Mistake(
                "DTL-VALUE-TWICE",
                f"the x of the rank opposite (on rank 0 that of rank {n // 2}) counts twice, as with tokens that go "
                "both ways and meet there",
                [total([*xs, xs[(r + n // 2) % n]]) for r in ranks],
            )
            for _ in range(n % 2 == 0)
        ),
        Mistake(
            "DTL-VALUE-TWICE",
            "x's count several times: the total so far was passed on; pass on what came last from the left",
            totals,
        ),
        Mistake(
            "DTL-VALUE-REPEATED",
            "the x of the left neighbour counts N - 1 times: all sent their own x in every step; pass on what came",
            [xs[r] + (n - 1) * xs[r - 1] for r in ranks],
        ),
    ]


CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=_CASES,
    mistakes=mistakes,
    rules=[POINT_TO_POINT],
    stress=Stress(poison=True),
)
