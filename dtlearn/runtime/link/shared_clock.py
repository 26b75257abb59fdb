"""The clock of an emulated link: when each transfer starts, agreed on by the ranks of a machine through one file.

The last rank to enter a transfer decides, for all: it starts when the ports of all that take part are free, and
occupies them. The file is memory that the ranks share; a file lock, which ends with the process that holds it, makes
each step whole. `time.monotonic_ns` is one clock for all processes of a machine. Nothing here waits for another rank.
"""

import fcntl
import hashlib
import mmap
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..errors import DtlearnError

# The file is an array of 64-bit words: a directory of lanes, then the slots of each. Untouched pages take no space.
_LANES = 4096  # groups, and pairs of ranks that send to each other
_SLOTS = 128  # transfers of a lane that are remembered
_WORDS = 8
_NUMBER, _ENTERED, _LATEST, _HOLD, _START, _GONE = range(6)  # words of a slot; a slot's number counts from 1
_SIZE = 8 * (_LANES + _LANES * _SLOTS * _WORDS)


@dataclass(frozen=True)
class Ticket:
    """One rank's part in one transfer. Times in ns."""

    lane: int  # a group, or the messages from one rank to another
    number: int  # of this transfer in its lane
    member: int  # this rank's place among those that take part
    ports: tuple[tuple[int, ...], ...]  # the ports that each of them occupies
    hold: int  # how long
    extra: int  # how much later this rank is done than its port is free
    entered: int  # when this rank entered


def port(rank: int, across: bool, receives: bool) -> int:
    """The number of a port's half: of that global rank, within its node or to other nodes."""
    return 4 * rank + 2 * across + receives


class LinkClock:
    """One rank's view of the file at `path`; the first rank makes it."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.ftruncate(self._file, _SIZE)
        self._words = memoryview(mmap.mmap(self._file, _SIZE)).cast("Q")
        self._threads = threading.Lock()
        self._lanes: dict[str, int] = {}
        self._busy = 0
        self.begin("")

    def begin(self, era: str) -> None:
        """Forget everything. Ranks that name the same era go on together, with all ports free."""
        self._era = era
        self._lanes.clear()
        self._busy = _LANES + self.lane("ports") * _SLOTS * _WORDS

    def lane(self, name: str) -> int:
        """The number of a lane. Raises DtlearnError if there are too many."""
        number = self._lanes.get(name)
        if number is None:
            digest = hashlib.blake2b(f"{self._era}|{name}".encode(), digest_size=8).digest()
            mark = int.from_bytes(digest) or 1
            with self._lock():
                number = self._find_lane(mark)
            self._lanes[name] = number
        return number

    def _find_lane(self, mark: int) -> int:
        for step in range(_LANES):
            lane = (mark + step) % _LANES
            if self._words[lane] in (0, mark):
                self._words[lane] = mark
                return lane
        raise DtlearnError(
            f"an emulated link can serve {_LANES} groups and pairs of ranks; this run made more. Make groups once."
        )

    def enter(self, ticket: Ticket) -> None:
        """This rank enters; if it is the last, the transfer gets its time."""
        words = self._words
        with self._lock():
            at = self._slot(ticket)
            if words[at + _NUMBER] > ticket.number + 1:  # so late that the slot is in use again
                return
            if words[at + _NUMBER] <= ticket.number:
                words[at : at + _WORDS] = memoryview(bytes(8 * _WORDS)).cast("Q")
                words[at + _NUMBER] = ticket.number + 1
            words[at + _ENTERED] += 1
            words[at + _LATEST] = max(words[at + _LATEST], ticket.entered)
            words[at + _HOLD] = max(words[at + _HOLD], ticket.hold)
            if words[at + _ENTERED] == len(ticket.ports):
                gone = words[at + _GONE]
                ports = [p for m, some in enumerate(ticket.ports) if not gone >> m & 1 for p in some]
                words[at + _START] = self._occupy(ports, words[at + _LATEST], words[at + _HOLD])

    def end(self, ticket: Ticket) -> int:
        """When this rank's part ends; asked once, when its real part has ended."""
        words = self._words
        with self._lock():
            at = self._slot(ticket)
            hold, start = ticket.hold, 0
            if words[at + _NUMBER] == ticket.number + 1:
                hold, start = words[at + _HOLD], words[at + _START]
                if not start:  # others have not entered, and this rank need not wait for them
                    words[at + _GONE] |= 1 << ticket.member
            if not start:
                start = self._occupy(ticket.ports[ticket.member], ticket.entered, hold)
            return start + hold + ticket.extra

    def release(self, ticket: Ticket) -> None:
        """Free this rank's ports now."""
        with self._lock():
            for p in ticket.ports[ticket.member]:
                self._words[self._busy + p] = 0

    def _slot(self, ticket: Ticket) -> int:
        return _LANES + (ticket.lane * _SLOTS + ticket.number % _SLOTS) * _WORDS

    def _occupy(self, ports: Sequence[int], earliest: int, hold: int) -> int:
        start = max(earliest, *(self._words[self._busy + p] for p in ports)) if ports else earliest
        for p in ports:
            self._words[self._busy + p] = start + hold
        return start

    @contextmanager
    def _lock(self) -> Iterator[None]:
        with self._threads:  # a file lock is the process's: it does not keep its own threads apart
            fcntl.flock(self._file, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.flock(self._file, fcntl.LOCK_UN)
