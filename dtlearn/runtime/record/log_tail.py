"""Follows the call logs of ranks while they run: which calls they have made, and which one they wait in."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .event import Event
from .log import read_line, take_line, to_event
from .operations import call_text
from .rank_file import read_rank_file

_HIDDEN_AFTER = 2.0  # seconds after which an unfinished hidden call counts as waited for


@dataclass(frozen=True)
class Wait:
    """A rank that waits inside a call, or for one."""

    event: Event
    text: str  # the call for a person, "its 3rd all_reduce, line 25: dist.all_reduce(t)"
    seconds: float  # how long it has waited


class LogTail:
    """Follows one rank's call log, reading only what is new."""

    def __init__(self, path: Path, rank: int) -> None:
        self._path, self._rank = path, rank
        self._offset, self._rest = 0, b""
        self.calls: dict[int, dict[str, Any]] = {}
        self.open: set[int] = set()  # numbers of the calls that have not ended
        self.waited: int | None = None  # number of the asynchronous call that `wait()` was called on
        self._made: Counter[str] = Counter()  # calls by operation
        self._counts: dict[int, int] = {}  # number of a call -> how many of its operation it makes
        self._events: dict[int, Event] = {}  # of calls that no line was about since: a long run is looked at often

    def read(self) -> bool:
        """Take in new lines. True if there were any. Raises Tampered if they are not the recorder's."""
        try:
            data = read_rank_file(self._path, self._offset)
        except FileNotFoundError:
            return False
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for text in lines:
            self._take(read_line(text, self._rank))
        return bool(lines)

    def _take(self, line: dict[str, Any]) -> None:
        seq = take_line(self.calls, line)
        self._events.pop(seq, None)
        if "end" in line:
            self.open.discard(seq)
            if self.waited == seq:
                self.waited = None
        elif "wait" in line:
            self.waited = seq
        elif "seq" in line:
            self.open.add(seq)
            self._made[line["op"]] += 1
            self._counts[seq] = self._made[line["op"]]

    def wait_for(self, event: Event, now_ns: int) -> Wait:
        """What is known of a call that the rank waits in."""
        text = call_text(event.op, self._counts.get(event.seq, 1), event.peer, event.line)
        text += f" (after {event.detail['during']})" if "during" in event.detail else ""
        text += f": {event.code}" if event.code else ""
        return Wait(event, text, max(0, now_ns - (event.wait_ns or event.start_ns)) / 1e9)

    def events(self) -> list[Event]:
        """The calls that are kept, in order."""
        for seq in self.calls.keys() - self._events.keys():
            self._events[seq] = to_event(self._rank, self.calls[seq])
        return [self._events[seq] for seq in self.calls]

    def blocked(self, events: list[Event], now_ns: int) -> Event | None:
        """The call that the rank is inside of or waits for."""
        for event in reversed(events):
            if event.seq == self.waited:
                return event
            if event.seq in self.open and self.waited is None:
                slow = now_ns - event.start_ns > _HIDDEN_AFTER * 1e9
                if not event.asynchronous or (event.detail.get("hidden") and slow):
                    return event
        return None

    def forget(self, done: set[int]) -> None:
        """Drop calls that cannot matter any more."""
        for seq in done - self.open:
            self.calls.pop(seq, None)
            self._counts.pop(seq, None)
            self._events.pop(seq, None)
