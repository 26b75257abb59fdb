"""A named fault of a group of ranks: which ranks, which calls, which lines, why it hangs, what to do."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..record.event import Event
from ..record.operations import peer_word
from ..words import columns, ordinal
from .codes import ADVICE


@dataclass(frozen=True)
class Diagnosis:
    """What went wrong between ranks.

    Attributes:
        code: stable name, a key of `faults.codes.ADVICE`.
        headline: one sentence that names the ranks.
        ranks: the ranks that have to change, or that are stuck.
        calls: for each rank that takes part, the call that the fault shows in; None: it made none.
        states: what each of them does now: "waits", "runs", "ended", "made this call".
        hint: more evidence, as a sentence; "" if none.
        whereabouts: `{rank: where it is}`, for ranks that are in no call.
    """

    code: str
    headline: str
    ranks: tuple[int, ...]
    calls: Mapping[int, Event | None] = field(default_factory=dict)
    states: Mapping[int, str] = field(default_factory=dict)
    hint: str = ""
    whereabouts: Mapping[int, str] = field(default_factory=dict)

    @property
    def is_mismatch(self) -> bool:
        """Calls were paired that do not fit; what follows, a process that gloo aborts say, is a consequence."""
        return bool(self.states) and set(self.states.values()) == {"called"}

    def __str__(self) -> str:
        """The sentence; the table; why; what to do. Evidence for the cause follows the sentence that it explains."""
        why, what = ADVICE[self.code]
        lines = [f"{self.headline}  [{self.code}]"]
        during = {r: e.detail["during"] for r, e in self.calls.items() if e is not None and "during" in e.detail}
        if len(during) < len(self.calls):  # where all ranks handle an exception, it is no difference between them
            lines += [
                f"rank {rank} was handling {error} when it made that call: begin there."
                for rank, error in during.items()
            ]
        lines += call_table(self.calls, self.states, self.whereabouts, mark=self.code.startswith("DTL-COLL-"))
        return "\n".join([*lines, why, *([self.hint] if self.hint else []), what])


def call_table(
    calls: Mapping[int, Event | None],
    states: Mapping[int, str],
    whereabouts: Mapping[int, str] | None = None,
    mark: bool = False,
) -> list[str]:
    """One line per rank, in columns: rank, state, call, source line. `mark`: ">" at ranks that differ from most."""
    rows = []
    for rank in sorted(calls):
        event = calls[rank]
        if event is None:
            rows.append((f"rank {rank}", states.get(rank, ""), (whereabouts or {}).get(rank, "no such call"), ""))
        else:
            code = f"line {event.line}: {event.code}" if event.code else f"line {event.line}"
            rows.append((f"rank {rank}", states.get(rank, ""), describe_call(event), code))
    marks = _marks([row[2] for row in rows]) if mark else ["  "] * len(rows)
    return [mark + line for mark, line in zip(marks, columns(rows, indent=""), strict=True)]


def _marks(cells: Sequence[str]) -> list[str]:
    """ "> " for what is unlike most of the others; of two halves, the second."""
    usual = max(cells, key=lambda cell: (cells.count(cell), -cells.index(cell)), default="")
    return ["  " if cell == usual else "> " for cell in cells]


def describe_call(event: Event) -> str:
    """ "all_reduce #3 SUM float32 (4,)": the k-th call on its group, and what distinguishes it."""
    parts = [f"{event.op} #{event.group_seq + 1}"]
    if event.peer is not None:
        parts.append(f"{peer_word(event.op)} {event.peer}")
    if "reduce_op" in event.detail:
        parts.append(event.detail["reduce_op"])
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


def lines_hint(calls: Mapping[int, Event]) -> str:
    """Where calls that do not fit come from different lines: then it is seldom the call that is wrong, but its turn."""
    if len({(e.line, e.code) for e in calls.values()}) == 1:  # a cell's file has another name on each rank
        return ""
    where = ", ".join(f"rank {rank} line {event.line}" for rank, event in calls.items())
    return f"These calls come from different lines ({where}): often one rank has made a call that another left out."
