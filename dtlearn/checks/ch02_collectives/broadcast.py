"""ch02.broadcast: from any rank, in as many rounds as a tree needs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from dtlearn.grading import Case, Check, Finding, Given, Mistake, Stress, compare, payload_bytes
from dtlearn.runtime.record.record import Record

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


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    """Compares. Of a rank that was not reached the messages tell more than its values."""
    found = compare(_VALUES, case, given, expected(case, given), got)
    if found is None or found.code != "DTL-VALUE-STALE":
        return found
    n, hops = case.world_size, [(sent.rank, sent.peer) for sent, _ in record.messages()]
    text = f"{found.text}. The root is rank {given[0]['root']}, and the messages were {_listed(hops)}"
    if n & (n - 1):
        text += f"; {n} is no power of two: does the last round, or the pairing of ranks, leave some out?"
    return replace(found, text=text)


def why(case: Case, given: Given, record: Record) -> str:
    """Of messages that do not fit: a rank that sends what it has not got, a root that receives, one that sends nothing
    on to a rank that nobody sends to."""
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


def _listed(hops: list[tuple[int, int | None]]) -> str:
    return ", ".join(f"{src} to {dst}" for src, dst in hops) or "none"


_VALUES = Check(
    on_rank,
    inputs,
    expected,
    cases=_CASES,
    mistakes=mistakes,
    rules=[POINT_TO_POINT, most_rounds("ceil(log2(N))")],
    payload=lambda case, given: payload_bytes(given, "x"),
    may_change_inputs=True,
    why=why,
    stress=Stress(poison=True),
)
CHECK = replace(_VALUES, expected=None, verify=verify)
