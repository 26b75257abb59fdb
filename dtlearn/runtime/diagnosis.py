"""A named fault of a group of ranks: which ranks, which calls, which lines, why it hangs, what to do.

The codes are stable: exercises, tests and class summaries count them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .calls import ordinal
from .record import Event

# Code -> what it means for the learner: why this goes wrong, and what to look for.
ADVICE = {
    "DTL-COLL-SKIP": (
        "Every rank of a group must make the same collective calls. The others wait in theirs until their time-out.",
        "Look for an `if` or an early `return` around the call that depends on the rank or on its data.",
    ),
    "DTL-COLL-ORDER": (
        "Collectives are paired by their order, not by their name. With gloo both wait; NCCL may hang or mix data.",
        "Make the calls in the same order on every rank.",
    ),
    "DTL-COLL-SHAPE": (
        "The ranks handed in tensors of different shapes. gloo aborts a process or fills tensors in part, silently; "
        "NCCL hangs or reads beyond the end.",
        "Print the shape on every rank just before the call; uneven shards have to be padded.",
    ),
    "DTL-COLL-DTYPE": (
        "The ranks handed in tensors of different types. Equal sizes are then silently read as the wrong type.",
        "Convert to one dtype before the call.",
    ),
    "DTL-COLL-ROOT": (
        "The ranks named different roots: each waits for another rank to send.",
        "Use the same src or dst on every rank; it is a global rank.",
    ),
    "DTL-COLL-OP": (
        "The ranks asked for different reductions. Nothing fails: the numbers are wrong.",
        "Use the same ReduceOp on every rank.",
    ),
    "DTL-COLL-GROUPS": (
        "The ranks wait for each other in calls on different groups.",
        "Order the groups: every rank that is in both must use them in the same order.",
    ),
    "DTL-P2P-CYCLE": (
        "Each of these ranks waits for the next one to take the other half. With gloo a send blocks until it "
        "is received; NCCL may let small ones pass and then hang on large ones.",
        "Let one rank of each pair receive first (even ranks send, odd ranks receive), or use batch_isend_irecv.",
    ),
    "DTL-P2P-UNMATCHED": (
        "A send and a recv pair up only if each names the other rank and both use the same tag and group.",
        "Compare the peers and tags below.",
    ),
}


@dataclass(frozen=True)
class Diagnosis:
    """What went wrong between ranks.

    Attributes:
        code: stable name, a key of `ADVICE`.
        headline: one sentence that names the ranks.
        ranks: the ranks that have to change, or that are stuck.
        calls: for each rank that takes part, the call that the fault shows in; None: it made none.
        states: what each of them does now: "waits", "returned", "made this call".
        hint: more evidence, as a sentence; "" if none.
    """

    code: str
    headline: str
    ranks: tuple[int, ...]
    calls: Mapping[int, Event | None] = field(default_factory=dict)
    states: Mapping[int, str] = field(default_factory=dict)
    hint: str = ""

    @property
    def is_mismatch(self) -> bool:
        """Calls were paired that do not fit; what follows, a process that gloo aborts say, is a consequence."""
        return bool(self.states) and set(self.states.values()) == {"called"}

    def __str__(self) -> str:
        why, what = ADVICE[self.code]
        lines = [f"{self.headline}  [{self.code}]", *call_table(self.calls, self.states)]
        lines += [
            f"rank {rank} was handling {event.detail['during']} when it made that call: begin there."
            for rank, event in self.calls.items()
            if event is not None and "during" in event.detail
        ]
        lines += [why, what]
        return "\n".join([*lines, *([self.hint] if self.hint else [])])


def call_table(calls: Mapping[int, Event | None], states: Mapping[int, str]) -> list[str]:
    """One line per rank, in columns: rank, state, call, source line."""
    rows = []
    for rank in sorted(calls):
        event = calls[rank]
        if event is None:
            rows.append((f"rank {rank}", states.get(rank, ""), "no such call", ""))
        else:
            code = f"line {event.line}: {event.code}" if event.code else f"line {event.line}"
            rows.append((f"rank {rank}", states.get(rank, ""), describe_call(event), code))
    widths = [max(len(row[i]) for row in rows) for i in range(3)] if rows else []
    return [
        "  " + "  ".join([*(c.ljust(w) for c, w in zip(row, widths, strict=False)), row[3]]).rstrip() for row in rows
    ]


def describe_call(event: Event) -> str:
    """ "all_reduce #3 SUM float32 (4,)": the k-th call on its group, and what distinguishes it."""
    parts = [f"{event.op} #{event.group_seq + 1}"]
    if event.peer is not None:
        word = {"send": "to", "isend": "to", "recv": "from", "irecv": "from"}.get(event.op, "root")
        parts.append(f"{word} {event.peer}")
    parts += [str(event.detail[k]) for k in ("reduce_op",) if k in event.detail]
    if "tag" in event.detail:
        parts.append(f"tag {event.detail['tag']}")
    if event.dtype and event.shape is not None:
        parts.append(f"{event.dtype} {tuple(event.shape)}")
    if event.group != "world":
        parts.append(f"group {event.group}")
    return " ".join(parts)


def parted_hint(histories: Mapping[int, Sequence[Event]]) -> str:
    """Where equal calls came from different lines: often the place where ranks parted before one was left over."""
    for k, events in enumerate(zip(*histories.values(), strict=False)):
        if len({(e.line, e.code) for e in events}) > 1 and len({e.op for e in events}) == 1:
            where = ", ".join(f"rank {r} line {h[k].line}" for r, h in histories.items())
            return f"Already the {ordinal(k + 1)} {events[0].op} came from different lines ({where}): look there first."
    return ""
