"""When ranks wait and others go on computing: what to say while it lasts, and what two looks at the ranks tell.

Nothing here knows whether work is slow or endless; it says what was seen. Two looks, a moment apart, at the lines
that a rank is at, and at the CPU time that it has used, tell a loop from progress and computing from sleeping.
"""

import bisect
from collections.abc import Mapping, Sequence

from ..faults.diagnosis import Diagnosis
from ..faults.stacks import Stuck
from ..machine.patience import LOOKS_APART
from ..record.event import Event
from ..words import by_value, ranks_text

_BUSY = 0.1  # share of the time between two looks that a rank computes; time without a processor is not in it
_SHOWN_AT = (3.0, 10.0, 30.0, 60.0)  # seconds of waiting after which a line is shown; then every minute


class Pace:
    """Decides when a wait is worth a line: after 3 s, and then ever more rarely."""

    def __init__(self) -> None:
        self._shown = 0  # lines of the wait that goes on

    def due(self, seconds: float) -> bool:
        """Whether a line should be shown now, the longest wait having lasted `seconds`. A new wait begins anew."""
        passed = bisect.bisect(_SHOWN_AT, seconds) + max(0, int(seconds // 60) - 1)
        due = passed not in (0, self._shown)
        self._shown = passed
        return due


def waiting_line(stuck: Sequence[Stuck], seconds: float) -> str:
    """One line on who waits for whom; "" if nobody waits or nobody computes."""
    calls = by_value({s.rank: s.call for s in stuck if s.state == "waits"})
    running = [s for s in stuck if s.state == "runs"]
    if not calls or not running:
        return ""
    parts = []
    for call, ranks in calls.items():
        where = call if len(ranks) == 1 else call.replace("its ", "their ", 1)
        parts.append(f"{ranks_text(ranks)} {'waits' if len(ranks) == 1 else 'wait'} in {where.partition(': ')[0]}")
    parts += [f"rank {s.rank} is running, at {own_line(s)}" for s in running[:4]]
    if len(running) > 4:
        parts.append(f"and {len(running) - 4} more are running")
    return f"{seconds:.0f} s: {'; '.join(parts)}"


def own_line(stuck: Stuck) -> str:
    """Where a rank is that computes, for a person."""
    return stuck.stack[-1] if stuck.stack else "no line of your code: not begun, or its result is being sent"


def judge(first: Sequence[Stuck], second: Sequence[Stuck], calls: Mapping[int, Event]) -> Diagnosis:
    """What two looks, `LOOKS_APART` from each other, say of ranks that did not end in time, or wait in `calls`."""
    before = {s.rank: s for s in first}
    states = {s.rank: s.state for s in second}
    waiting = [s.rank for s in second if s.state == "waits"]
    running = [s for s in second if s.state == "runs"]
    whereabouts = {s.rank: s.call if s.state == "waits" else own_line(s) for s in second if s.rank not in calls}
    whereabouts |= dict.fromkeys([s.rank for s in second if s.state == "ended"], "returned")

    def diagnosis(code: str, ranks: Sequence[int], headline: str) -> Diagnosis:
        shown = {s.rank: calls.get(s.rank) for s in second}
        return Diagnosis(code, headline, tuple(ranks), shown, states, whereabouts=whereabouts)

    making = [s.rank for s in second if s.state == "waits" and s.frames and s.frames[-1].inside]
    if making:
        others = [rank for rank in states if rank not in making]
        inside = next(s.frames[-1].inside for s in second if s.rank in making)
        verb = "waits" if len(making) == 1 else "wait"
        rest = f", and {'does' if len(making) == 1 else 'do'} not find the others"
        if others:
            # A rank that has left the call looks like one that has not come to it.
            rest = f"; {ranks_text(others)} {'is' if len(others) == 1 else 'are'} not in it: not yet, or no more"
        return diagnosis("DTL-INIT", others or making, f"{ranks_text(making)} {verb} in {inside}{rest}")
    if stopped := [s.rank for s in second if s.stopped]:
        verb = "is" if len(stopped) == 1 else "are"
        text = f"{ranks_text(stopped)} {verb} stopped by a signal, and {verb} not running"
        return diagnosis("DTL-RANK-STOPPED", stopped, text)
    compared = {s.rank: _compare(before.get(s.rank, s), s) for s in running}
    loops = [rank for rank, (loop, _) in compared.items() if loop]
    who = f"{ranks_text(waiting)} {'waits' if len(waiting) == 1 else 'wait'}; " if waiting else "no rank waits; "
    if loops and (waiting or len(loops) == len(running)):
        return diagnosis("DTL-LOOP", loops, who + _say({rank: compared[rank][1] for rank in loops}))
    if waiting and running:
        late = {rank: words for rank, (_, words) in compared.items()}
        return diagnosis("DTL-STRAGGLER", list(late), who + _say(late))
    return diagnosis("DTL-TIMEOUT", [r for r, state in states.items() if state != "ended"], "the time was up")


def _say(seen: Mapping[int, str]) -> str:
    """What was seen of each rank, in a sentence; the same of several is said once."""
    return "; ".join(f"{ranks_text(ranks)} {words}" for words, ranks in by_value(seen).items())


def _compare(earlier: Stuck, later: Stuck) -> tuple[bool, str]:
    """Whether two looks at a rank show a loop; and what they show, in words that fit one rank and several."""
    if earlier.state != "runs" or not earlier.frames or not later.frames:
        return False, f"{'came to' if later.stack else 'has'} {own_line(later)}"
    loops = {(frame.file, frame.name, frame.loop) for frame in earlier.frames if frame.loop}
    for frame in reversed(later.frames):
        if frame.loop and (frame.file, frame.name, frame.loop) in loops:
            kind, first, last = frame.loop
            where = f"line {first}" if first == last else f"lines {first}-{last}"
            if kind == "while":
                return True, f"did not leave the `while` loop at {where} between two looks"
            return False, f"stayed in the `for` loop at {where}, and came to {own_line(later)}"
    if [(f.file, f.line) for f in earlier.frames] != [(f.file, f.line) for f in later.frames]:
        return False, f"went on from {own_line(earlier)} to {own_line(later)} between two looks"
    if earlier.cpu_seconds is None or later.cpu_seconds is None:
        return False, f"stayed at {own_line(later)}"
    if later.cpu_seconds - earlier.cpu_seconds >= _BUSY * LOOKS_APART:
        return True, f"did not get past {own_line(later)}, and computed all the time"
    return False, f"stayed at {own_line(later)} without computing: a sleep, or a wait for something outside"
