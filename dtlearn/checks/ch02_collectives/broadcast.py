"""ch02.broadcast: from any rank, in as many rounds as a tree needs."""

from __future__ import annotations

from typing import Any

import torch

from dtlearn.grading import Case, Check, Given, Mistake, Stress, payload_bytes

from ..rounds import most_rounds
from ._messages import POINT_TO_POINT, not_in_place

# root: of the ranks that there are, the remainder.
_CASES: dict[str, dict[str, Any]] = {
    "from rank 0": {"root": 0, "shape": [5], "dtype": torch.float32},
    "from the last rank": {"root": -1, "shape": [2, 3], "dtype": torch.int64},
    "a long tensor, from rank 1": {"root": 1, "shape": [300_000], "dtype": torch.float32},
}


def inputs(case: Case) -> Given:
    g, root = case.generator(), case.params["root"] % case.world_size
    shape, dtype = case.params["shape"], case.params["dtype"]
    return [
        {"x": (1000 * torch.randn(shape, generator=g)).to(dtype) + 10 * rank, "root": root}
        for rank in range(case.world_size)
    ]


def on_rank(answer: Any, x: torch.Tensor, root: int) -> Any:
    answer(x, root)
    return x


def expected(case: Case, given: Given) -> list[torch.Tensor]:
    return [given[given[0]["root"]]["x"]] * case.world_size


def mistakes(case: Case, given: Given) -> list[Mistake]:
    root, ranks = given[0]["root"], range(case.world_size)
    xs = [i["x"] for i in given]
    found = [not_in_place(xs)] if case.world_size > 1 else []
    for other in ranks:
        if other != root:
            text = f"all ranks have the x of rank {other}, but the root is rank {root}: it is an argument"
            found.append(Mistake("DTL-VALUE-SOURCE", text, [xs[other]] * case.world_size))
    text = f"rank 0 sent its own x to the others; the root is rank {root}"
    found.append(Mistake("DTL-VALUE-SOURCE", text, [xs[root] if r == root else xs[0] for r in ranks]))
    return found


CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=_CASES,
    mistakes=mistakes,
    rules=[POINT_TO_POINT, most_rounds("ceil(log2(N))")],
    payload=lambda case, given: payload_bytes(given, "x"),
    may_change_inputs=True,
    stress=Stress(poison=True),
)
