"""ch02.all_reduce: any number of elements, within the bytes of a ring.

Whoever keeps to these bytes adds up each element in one place: so all ranks get the same bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from dtlearn.grading import Case, Check, Edit, Given, Stress, payload_bytes

from ._messages import NOT_IN_PLACE, POINT_TO_POINT, chunk_budget, no_narrower, padded_bytes, total

# The first case has four ranks: with two both neighbours are one rank, and many mistakes are alike.
# Elements: `per_rank` for each rank, and `more`; in so many rows.
CASES: dict[str, dict[str, Any]] = {
    "four ranks": {"per_rank": 2, "sizes": (4,)},
    "fewer ranks": {"per_rank": 2, "sizes": (1, 2, 3)},
    "two dimensions": {
        "says": "x may have several dimensions: cut its elements, and not its rows (x.view(-1))",
        "per_rank": 4,
        "rows": 4,
    },
    "N does not divide the number of elements": {
        "says": "N need not divide the number of elements: x.view(-1).tensor_split(N) gives N chunks that cover x",
        "per_rank": 2,
        "more": -1,
    },
    "fewer elements than ranks": {
        "says": "there may be fewer elements than ranks: some of the N chunks are empty",
        "per_rank": 1,
        "more": -1,
    },
    "numbers of 64 bits": {"says": "x may have another dtype", "per_rank": 2, "dtype": torch.float64},
}
CHUNKS = "chunks = x.view(-1).tensor_split(world_size)"
REDUCE, GATHER = "range(world_size - 1):  #", "range(world_size - 1):\n        sending"
ADD, PASS = "target += arriving", "dist.isend(chunks[(rank - step) % world_size], right)"
INTO = "dist.recv(chunks[(rank - step - 1) % world_size], left)"
INTO_NEW = "there = chunks[(rank - step - 1) % world_size]; arriving = torch.empty_like(there)"
ALIKE = "if x.numel() % world_size == 0 else"  # else such a program raises


def edits(own: int, turn: Mapping[str, str]) -> tuple[Edit, ...]:
    """The mistakes of a ring in which chunk rank + `own` is complete on a rank after the reduce-scatter."""
    begins = f"rank 0 ends with chunk {own} complete, and begins with chunk {own + 1}"
    return (
        Edit(f"only one chunk is the sum on each rank (on rank 0 chunk {own}): that is the reduce-scatter; the "
             "all-gather is missing", {GATHER: GATHER.replace("world_size - 1", "0"), **turn}),
        Edit("one chunk is the sum on each rank, and the others are its own: the sums are in new tensors, which are no "
             "part of x; write into the view (chunks[c] += ..., and not chunks[c] = chunks[c] + ...)",
             {CHUNKS: f"{turn.get(CHUNKS, CHUNKS)}; chunks = list(chunks)",
              ADD: "chunks[(rank - step - 2) % world_size] = target + arriving"}),
        Edit(OWN, {REDUCE: REDUCE.replace("- 1", "- 2"), **turn}),
        Edit("one step too few in the all-gather: each rank lacks the sum of one chunk",
             {GATHER: GATHER.replace("- 1", "- 2"), **turn}),
        Edit("summands count twice: the all-gather adds what it receives; a complete chunk has to replace what is "
             "there (in one loop over both phases only the first N - 1 steps may add)",
             {f"{INTO}\n        sending.wait()":
              f"{INTO_NEW}; dist.recv(arriving, left); sending.wait(); there += arriving", **turn}),
        Edit("the all-gather begins with another chunk than the reduce-scatter ends with, and a summand is missing in "
             f"every chunk: {begins}",
             {PASS: PASS.replace("step", "step + 1"), INTO: INTO.replace(" - 1)", ")"), **turn}),
        Edit("the reduce-scatter sends to the right and the all-gather to the left, both with the chunk numbers of a "
             "ring to the right: send to the right in both, or count the other way",
             {PASS: PASS.replace("right", f"left {ALIKE} right"), INTO: INTO.replace("left", f"right {ALIKE} left"),
              **turn}),
    )  # fmt: skip


OWN = (
    "each chunk is one rank's own, with nothing added to it: the reduce-scatter is a step short, or what arrives in it "
    "replaces the chunk (add it), or the all-gather begins with a chunk that is not complete on the rank (which one "
    "is? If rank 0 sends chunk 0 first, it ends with chunk 1)"
)
EDITS = (
    Edit(NOT_IN_PLACE, {CHUNKS: CHUNKS.replace("x", "x.clone()")}),
    *edits(0, {}),
    *edits(1, {CHUNKS: f"{CHUNKS}; chunks = chunks[1:] + chunks[:1]"}),
    Edit(OWN, {ADD: "target.copy_(arriving)"}),
    Edit("the last elements are still each rank's own: N chunks of numel // N elements do not cover x",
         {CHUNKS: CHUNKS.replace(".tensor", "[: x.numel() // world_size * world_size].tensor")}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    g, n, p = case.generator(), case.world_size, case.params
    numel = max(1, p["per_rank"] * n + p.get("more", 0))
    dtype, shape = p.get("dtype", torch.float32), [p["rows"], -1] if "rows" in p else [-1]
    return [{"x": (100 * torch.rand(numel, generator=g) + rank).to(dtype).view(shape)} for rank in range(n)]


def on_rank(answer: Any, x: torch.Tensor) -> Any:
    answer(x)
    return x


def expected(case: Case, given: Given) -> list[torch.Tensor]:
    return [total([i["x"] for i in given])] * case.world_size


def payload(case: Case, given: Given) -> int:
    return padded_bytes(given[0]["x"], case.world_size)


CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    example=[{"x": torch.tensor([1.0, 2.0, 3.0]) * k} for k in (1, 10)],
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
