"""What the checks of this chapter share: rules on messages, and sentences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from dtlearn.grading import Case, Finding, Given, Rule, rules
from dtlearn.grading.on_rank.stress import UNWRITTEN
from dtlearn.runtime.record.record import Record

_MOST_SIZES = 6  # of messages that are shown

# Not a value can tell whether nothing came or nothing was kept: so both are said.
NOT_IN_PLACE = (
    "x is on every rank as it was: nothing was written into it. It must change in place (x.copy_(...), x += ...): a "
    "tensor that is returned, bound to the name x (x = x.clone()), or made by cat or pad is not the caller's"
)


def nothing(tensor: str) -> tuple[str, str]:
    """For an edit, what is in a place that nobody wrote: of torch.zeros_like, or of torch.empty_like while an answer is
    graded, of the dtype of this tensor."""
    return "0", f"float('nan') if {tensor}.is_floating_point() else {UNWRITTEN}"


POINT_TO_POINT = rules.only(
    *("send", "recv", "isend", "irecv"), why="The point is to build it from messages between two ranks."
)


def chunk_budget(
    limit: Callable[[Case, Given], float],
    whole: Callable[[Case, Given], int],
    num_journeys: int = 1,
    uneven: str = "",
) -> Rule:
    """`rules.most_bytes(limit)`, which recognises messages that are the whole tensor, `whole` bytes, too many of them
    for so many journeys of N - 1 steps, and messages that are too large; `uneven` is the advice then."""
    plain = rules.most_bytes(limit)

    def rule(case: Case, given: Given, record: Record) -> Finding | None:
        found = plain(case, given, record)
        if found is None or found.rank is None:
            return found
        sent = [e.nbytes for e in record.select(rank=found.rank) if e.sends]
        large = sum(nbytes >= whole(case, given) for nbytes in sent)
        steps = num_journeys * (case.world_size - 1)
        if not large and len(sent) > steps:
            text = f"{found.text}: it sent {len(sent)} messages; N - 1 steps, {steps}, are enough"
            return replace(found, text=text if num_journeys == 1 else text.replace("N - 1", "2 (N - 1)", 1))
        if not large:
            peers = {e.peer for e in record.select(rank=found.rank) if e.sends}
            to = f" to rank {peers.pop()}" if len(peers) == 1 else ""
            sizes, each = ", ".join(f"{nbytes:,}" for nbytes in sent[:_MOST_SIZES]), limit(case, given) / steps
            sizes += ", ..." * (len(sent) > _MOST_SIZES)
            text = f"{found.text}: its messages{to} have {sizes} bytes; {each:,.0f} each are enough"
            return replace(found, text=text, advice=uneven)
        which = f"each of its {large} messages" if large > 1 else "its only message"
        which = which if large == len(sent) else f"of its {len(sent)} messages {large}"
        return replace(
            found, text=f"{found.text}: {which} {'is' if large in (1, len(sent)) else 'are'} the whole tensor"
        )

    return rule


def no_narrower(dtype_of: Callable[[Given], torch.dtype]) -> Rule:
    """What is sent keeps the digits of what was given, in `dtype_of(given)`; values within a tolerance do not tell."""

    def rule(case: Case, given: Given, record: Record) -> Finding | None:
        dtype = dtype_of(given)
        for event in record:
            sent = getattr(torch, event.dtype or "", dtype)
            if event.sends and sent.is_floating_point and sent.itemsize < dtype.itemsize:
                text = f"line {event.line} of rank {event.rank} sends {event.dtype}; what was given is "
                text += f"{str(dtype).removeprefix('torch.')}: digits are lost, although the result has its dtype again"
                return Finding("DTL-RULE-DTYPE", text, event.rank, event.line or None, "Keep the dtype that was given.")
        return None

    return rule


def total(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """The sum, rounded once."""
    first = tensors[0]
    exact = torch.float64 if first.is_floating_point() else torch.int64
    return torch.stack([t.to(exact) for t in tensors]).sum(0).to(first.dtype)


def padded_bytes(x: torch.Tensor, num_chunks: int) -> int:
    """Size of x, rounded up to so many equal chunks."""
    return -(-x.numel() // num_chunks) * num_chunks * x.element_size()
