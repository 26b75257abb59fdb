"""ch02.broadcast: from any rank, in as many rounds as a tree needs."""

from __future__ import annotations

from typing import Any

import torch

from dtlearn.grading import Case, Check, Edit, Given, Stress, payload_bytes
from dtlearn.runtime.record.record import Record

from ..rounds import most_rounds
from ._messages import NOT_IN_PLACE, POINT_TO_POINT

# The first case has four ranks: with two many mistakes are alike. `root`: of the ranks that there are, the remainder.
CASES: dict[str, dict[str, Any]] = {
    "from rank 0": {"sizes": (4,)},
    "N is no power of two": {
        "says": "N need not be a power of two: in the last round only some of the ranks have a partner",
        "sizes": (7,),
    },
    "from the last rank": {
        "says": "the root may be any rank: count the places of the ranks from it, (rank - root) % N",
        "root": -1,
    },
    "whole numbers": {"says": "x may hold whole numbers", "dtype": torch.int64},
}
LOOP = "while have < world_size:"
SEND, RECV = "dist.send(x, (rank + have) % world_size)", "dist.recv(x, (rank - have) % world_size)"
TREE = f"""    have = 1  # places 0 to have - 1 have it
    {LOOP}
        if place < have and place + have < world_size:
            {SEND}
        elif have <= place < 2 * have:
            {RECV}
        have *= 2
"""
HALVES = f"""    have = world_size // 2
    while have:
        if place % (2 * have) == 0 and place + have < world_size:
            {SEND}
        elif place % (2 * have) == have:
            {RECV}
        have //= 2
"""
EDITS = (
    Edit(NOT_IN_PLACE, {TREE: f"    x = x.clone()\n{TREE}"}),
    Edit("one round too few: the ranks that the last round reaches still have their own x; go on until all have it",
         {LOOP: "while 2 * have < world_size:"}),
    Edit("some ranks still have their own x, because nobody sends to them: the distances begin with N // 2, rounded "
         "down, and halve from there; begin with the largest power of two below N", {TREE: HALVES}),
    Edit("all ranks have the x of rank 0, whichever rank is the root: it is an argument",
         {"(rank - root) % world_size": "rank"}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    g, root = case.generator(), case.params.get("root", 0) % case.world_size
    dtype = case.params.get("dtype", torch.float32)
    return [
        {"x": (1000 * torch.randn(2, 2, generator=g)).to(dtype) + 10 * rank, "root": root}
        for rank in range(case.world_size)
    ]


def on_rank(answer: Any, x: torch.Tensor, root: int) -> Any:
    answer(x, root)
    return x


def expected(case: Case, given: Given) -> list[torch.Tensor]:
    return [given[given[0]["root"]]["x"]] * case.world_size


def why(case: Case, given: Given, record: Record) -> str:
    """The hint where messages do not match: a rank sends what it has not received, the root receives, or a rank passes
    nothing on to one that nobody else sends to."""
    root = given[0]["root"]
    for rank in range(case.world_size):
        first = next((e for e in record.select(rank=rank) if e.is_p2p), None)
        if first and first.sends != (rank == root):
            but = f"sends before it has received anything, and the root is rank {root}"
            return f"rank {rank} {but if rank != root else 'is the root, and receives'}"
    senders, sent_to = {e.rank for e in record if e.sends}, {e.peer for e in record if e.sends}
    keepers = {e.rank for e in record if e.is_p2p and e.end_ns is not None} - senders
    for event in record:
        if event.peer in keepers and event.end_ns is None and event.rank not in sent_to:
            keeps = f"rank {event.peer} keeps what it received, and passes it on to nobody: has it ended after its recv"
            return f"{keeps} (a return or break there), or does only the root send?"
    return ""


CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    example=[{"x": torch.tensor([float(rank)]), "root": 2} for rank in range(4)],
    rules=[POINT_TO_POINT, most_rounds("ceil(log2(N))")],
    payload=lambda case, given: payload_bytes(given, "x"),
    may_change_inputs=True,
    why=why,
    stress=Stress(poison=True),
)
