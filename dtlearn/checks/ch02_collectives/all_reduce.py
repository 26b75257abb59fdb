"""ch02.all_reduce: any number of elements, within the bytes of a ring.

Whoever keeps to these bytes adds up each element in one place: so all ranks get the same bits.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from dtlearn.grading import Case, Check, Finding, Given, Mistake, Stress, compare, payload_bytes
from dtlearn.runtime.record.record import Record

from ._messages import POINT_TO_POINT, chunk_budget, no_narrower, not_in_place, padded_bytes, total, travel

# Elements: `per_rank` for each rank, and `more`; in so many rows.
_CASES: dict[str, dict[str, Any]] = {
    "N divides the size, two dimensions": {"per_rank": 4, "more": 0, "rows": 4},
    "N does not divide the size": {"per_rank": 5, "more": -1},
    "fewer elements than ranks": {"per_rank": 1, "more": -1, "dtype": torch.float64},
    "a long tensor": {"per_rank": 130_000, "more": -1},
}


def inputs(case: Case) -> Given:
    g, n = case.generator(), case.world_size
    numel = max(1, case.params["per_rank"] * n + case.params["more"])
    dtype = case.params.get("dtype", torch.float32)
    shape = [case.params["rows"], -1] if "rows" in case.params else [-1]
    return [{"x": (100 * torch.rand(numel, generator=g) + rank).to(dtype).view(shape)} for rank in range(n)]


def on_rank(answer: Any, x: torch.Tensor) -> Any:
    answer(x)
    return x


def expected(case: Case, given: Given) -> list[torch.Tensor]:
    return [total([i["x"] for i in given])] * case.world_size


def mistakes(case: Case, given: Given) -> list[Mistake]:
    n, ranks = case.world_size, range(case.world_size)
    if n == 1:
        return []
    xs = [i["x"] for i in given]
    mine = [list(x.view(-1).tensor_split(n)) for x in xs]
    found = [not_in_place(xs)]

    def add(code: str, text: str, held: list[list[torch.Tensor]]) -> None:
        found.append(Mistake(code, text, [torch.cat(held[r]).view_as(xs[r]) for r in ranks]))

    for first in (-1, 0):  # the chunk that a rank sends first; it ends with chunk `rank + own` complete
        own = first + 1
        reduced = travel(mine, ranks, n - 1, first, adds=True)
        short = travel(mine, ranks, n - 2, first, adds=True)
        add(
            "DTL-VALUE-ONE-CHUNK",
            f"only one chunk is the sum on each rank (on rank 0 chunk {own}): that is the reduce-scatter; the "
            "all-gather is missing"
            + (
                ", or one step short; or the other chunk's sum is in a new tensor, which is no part of x (write into "
                "the view: chunks[c] += ..., and not chunks[c] = chunks[c] + ...)"
                if n == 2
                else ""
            ),
            reduced,
        )
        add(
            "DTL-VALUE-MISSING",
            "one step too few in the reduce-scatter: a summand is missing in every chunk"
            + ("; or what arrives there replaces the chunk, to which it has to be added" if n == 2 else ""),
            travel(short, ranks, n - 1, own, adds=False),
        )
        add(
            "DTL-VALUE-SHORT",
            "one step too few in the all-gather: each rank lacks the sum of one chunk",
            travel(reduced, ranks, n - 2, own, adds=False),
        )
        add(
            "DTL-VALUE-TWICE",
            "summands count twice: the all-gather adds what it receives; a complete chunk has to replace what is there "
            "(or: in one loop over both phases, only the first N - 1 steps may add)",
            travel(reduced, ranks, n - 1, own, adds=True),
        )
        for shift in (-1, 1):
            add(
                "DTL-VALUE-WRONG-CHUNK",
                f"the all-gather begins with another chunk than the reduce-scatter ends with: rank 0 ends with chunk "
                f"{own} complete, and begins with chunk {(own + shift) % n}",
                travel(reduced, ranks, n - 1, own + shift, adds=False),
            )
    if n > 2 and xs[0].numel() % n == 0:  # chunks of one size go into each other's places
        held = travel(mine, ranks, n - 1, -1, adds=True)
        for k in range(n - 1):
            sent = [held[r][(r - k) % n] for r in ranks]
            for r in ranks:
                held[r][(r - k - 1) % n] = sent[(r + 1) % n]
        text = "the reduce-scatter sends to the right and the all-gather to the left, both with the chunk numbers of a "
        text += "ring to the right: send to the right in both, or count the other way"
        add("DTL-VALUE-WRONG-CHUNK", text, held)
    length = xs[0].numel() // n * n
    if length != xs[0].numel():  # such a tensor has one dimension
        text = f"the last {len(xs[0]) - length} of {len(xs[0])} elements are still each rank's own: {n} chunks of "
        text += f"{length // n} do not cover the tensor"
        sums = total(xs)
        found.append(Mistake("DTL-VALUE-TAIL", text, [torch.cat([sums[:length], x[length:]]) for x in xs]))
    return found


def payload(case: Case, given: Given) -> int:
    return padded_bytes(given[0]["x"], case.world_size)


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    """Compares. With and without the reduce-scatter's last step, two answers return the same: their messages differ."""
    found = compare(_VALUES, case, given, expected(case, given), got)
    sent = min(sum(event.sends for event in record.select(rank=rank)) for rank in range(case.world_size))
    if found and found.code == "DTL-VALUE-MISSING" and sent == 2 * (case.world_size - 1):
        text = "every chunk is one rank's own, with nothing added: what arrives in the first half replaces the chunk "
        text += "(add it), or the all-gather begins with another chunk than the reduce-scatter completes (rank 0 ends "
        text += "with chunk 1 complete, if it begins by sending chunk 0)"
        return replace(found, code="DTL-VALUE-WRONG-CHUNK", text=text)
    return found


_VALUES = Check(
    on_rank,
    inputs,
    expected,
    cases=_CASES,
    mistakes=mistakes,
    rules=[
        POINT_TO_POINT,
        chunk_budget(
            lambda case, given: 2 * (case.world_size - 1) / case.world_size * payload(case, given),
            whole=lambda case, given: payload_bytes(given, "x"),
            num_journeys=2,
            uneven="Cut the elements and not the rows: x.view(-1).tensor_split(N).",
        ),
        no_narrower(lambda given: given[0]["x"].dtype),
    ],
    payload=payload,
    may_change_inputs=True,
    stress=Stress(poison=True),
)
CHECK = replace(_VALUES, expected=None, verify=verify)
