"""Listens to the ranks of one run until all have finished, one fails, or the time is up."""

import contextlib
import os
import selectors
import signal
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from .. import wire
from ..faults.failure import Failure, first_cause_first
from ..machine.limits import Limits
from ..machine.memory import oom_kills
from ..machine.patience import TO_SAY_THE_SAME, Patience
from ..output import BoundedText
from ..rank.spec import LOST_LINE
from ..record.event import Mark
from ..record.rank_file import Tampered

_MOST_TEXT = 1 << 20  # characters of what a rank says of an exception; it has cut that itself
_MOST_MARKS, _LONGEST_LABEL = 1000, 100  # of a rank; in characters


@dataclass
class RankState:
    """What is known of one rank."""

    channel: socket.socket
    output_fd: int
    pid: int = 0
    output: BoundedText = field(default_factory=BoundedText)
    marks: list[Mark] = field(default_factory=list)
    result: bytes | None = None
    failure: Failure | None = None
    finished: bool = False
    ready: dict[str, Any] | None = None  # of a kernel: how to connect to it
    fault: str = ""  # why its call log is incomplete
    status: int | None = None  # exit code, negative for a signal; None while it lives


class Collector:
    """Reads channels, output and deaths of all ranks of a run.

    `events_fd`: where deaths are reported; closed with this. `limits`: of each rank. `patience`: see `Agent.patience`.
    """

    def __init__(
        self,
        ranks: list[RankState],
        events_fd: int,
        limits: Limits | None = None,
        patience: Callable[[float, Iterable[int]], Patience] = Patience,
    ) -> None:
        self.ranks, self._patience = ranks, patience
        self.limits = limits or Limits()
        # Of the k-th mark of a rank: seconds until it is answered, and lines in its log. None: nobody answers.
        self.meet: Callable[[int, int], tuple[float, int]] | None = None
        self._held: dict[int, float] = {}  # rank that waits for an answer -> when it gets it
        self._oom_kills = oom_kills()
        self._selector = selectors.DefaultSelector()
        self._decoders = [wire.Decoder() for _ in ranks]
        self._events = wire.Decoder()
        self._open = set(range(len(ranks)))
        self._events_fd = events_fd
        os.set_blocking(events_fd, False)
        self._selector.register(events_fd, selectors.EVENT_READ, ("events", -1))
        for number, state in enumerate(ranks):
            state.channel.setblocking(False)
            os.set_blocking(state.output_fd, False)
            self._selector.register(state.channel, selectors.EVENT_READ, ("channel", number))
            self._selector.register(state.output_fd, selectors.EVENT_READ, ("output", number))

    def begin_again(self) -> None:
        """Ranks that have finished are given something else to do: forget what they said of the last."""
        for rank, state in enumerate(self.ranks):
            state.output, state.marks = BoundedText(self.limits.output), []
            state.result, state.finished, state.fault = None, False, ""
            if state.status is not None:  # it has ended behind its last word: now that is a failure
                self._died(rank, state.status)

    def tell_all(self, data: bytes | Sequence[bytes]) -> None:
        """Send the same to every rank, or each rank its own."""
        for state, own in zip(self.ranks, [data] * len(self.ranks) if isinstance(data, bytes) else data, strict=True):
            state.channel.setblocking(True)
            # A rank that died at once is reported by the agent; what it says is worth more than "broken pipe".
            with contextlib.suppress(OSError):
                state.channel.sendall(own)
            state.channel.setblocking(False)

    def wait(self, deadline: float, stop: Callable[[], bool] = lambda: False) -> bool:
        """Listen until all ranks finished, one failed (then a moment longer), or `stop()`, asked every 50 ms.

        Returns False if the deadline came first.
        """
        while not all(s.finished for s in self.ranks):
            if any(s.failure for s in self.ranks):
                self.listen_for(TO_SAY_THE_SAME, lambda: all(s.finished or s.failure for s in self.ranks))
                return True
            if time.monotonic() >= deadline:
                return False
            if stop():
                return True
            self.listen(min(0.05, deadline - time.monotonic()))
        return True

    def patience(self, seconds: float) -> Patience:
        """A patience of so many seconds for the ranks that have not ended."""
        return self._patience(seconds, [s.pid for s in self.ranks if s.status is None])

    def listen_for(self, seconds: float, done: Callable[[], Any] = lambda: False) -> None:
        """Keep reading until `done()`, or until so much time of patience is over."""
        patience = self.patience(seconds)
        while not done() and (left := patience.left()):
            self.listen(min(0.05, left))

    def wait_for_deaths(self, seconds: float) -> bool:
        """Listen until every rank has ended; then read what is left of its output."""
        patience = self.patience(seconds)
        while any(s.status is None for s in self.ranks) and (left := patience.left()):
            self.listen(min(0.05, left))
        while self.listen(0) and not patience.over():  # a grandchild may hold the pipe and print for ever
            pass
        return all(s.status is not None for s in self.ranks)

    def fileno(self) -> int:
        """A descriptor that is readable when something has arrived."""
        return self._selector.fileno()

    def close(self) -> None:
        """Listen no more, to any rank."""
        for number in list(self._open):
            self.leave(number)

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError):  # it was never complete
            self.close()

    def leave(self, number: int) -> None:
        """Listen no more to one rank, such as one that has ended and was replaced. The last one closes all."""
        if number not in self._open:
            return
        self._open.remove(number)
        state = self.ranks[number]
        for end in (state.channel, state.output_fd):
            with contextlib.suppress(KeyError):  # at the end of its stream it was given up already
                self._selector.unregister(end)
        state.channel.close()
        os.close(state.output_fd)
        if not self._open:
            self._selector.close()
            os.close(self._events_fd)

    def failures(self) -> tuple[Failure, ...]:
        """All failures, the first cause first."""
        return first_cause_first([s.failure for s in self.ranks if s.failure])

    def listen(self, seconds: float) -> bool:
        """Handle what has arrived, waiting for it at most that long. True: something came."""
        ready = self._selector.select(max(0.0, min([seconds, *(t - time.monotonic() for t in self._held.values())])))
        came = False
        # Deaths last: what a rank said before it ended counts first.
        for key, _ in sorted(ready, key=lambda item: item[0].data[0] == "events"):
            kind, number = key.data
            try:
                data = os.read(key.fd, 1 << 18)
            except BlockingIOError:
                continue
            except OSError:
                data = b""
            if not data:
                self._selector.unregister(key.fileobj)
                if kind == "events":
                    self._agent_left()
                continue
            came = True
            if kind == "output":
                self.ranks[number].output.add(data)
            elif kind == "channel":
                self._take(number, data)
            else:
                for header, _ in self._events.feed(data):
                    self._died(header["index"], header["status"], header.get("reason", ""))
        # After all that has arrived: a rank that said where it is was there before these go on.
        for rank in [rank for rank, due in self._held.items() if due <= time.monotonic()]:
            marks, _ = self.ranks[rank].marks, self._held.pop(rank)
            marks[-1] = marks[-1]._replace(answered_ns=time.monotonic_ns())
            with contextlib.suppress(OSError):  # it is gone
                self.ranks[rank].channel.send(b"!")
        return came

    def _take(self, rank: int, data: bytes) -> None:
        """What a rank says. Raises Tampered if it is no message: only a learner's code can have written it."""
        try:
            for header, blob in self._decoders[rank].feed(data):
                self._hear(rank, header, blob)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, FileNotFoundError):
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(self.ranks[rank].channel)
            text = f"rank {rank} wrote to the line on which ranks report to this program, and what came is no message"
            raise Tampered(text) from None

    def _hear(self, rank: int, header: dict[str, Any], blob: bytes) -> None:
        state = self.ranks[rank]
        if header["kind"] == "result":
            state.result = blob
        elif header["kind"] == "error":
            name, message, text = (header[key][:_MOST_TEXT] for key in ("type", "message", "traceback"))
            state.failure = Failure.raised(rank, name + "", message + "", text + "", int(header["time_ns"]))
        elif header["kind"] == "ready":
            state.ready = dict(header["connection"])
        elif header["kind"] == "incomplete":
            state.fault = header["reason"][:_MOST_TEXT] + ""
        elif header["kind"] == "mark" and self.meet is not None:
            if rank in self._held or len(state.marks) >= _MOST_MARKS or len(header["label"]) > _LONGEST_LABEL:
                raise ValueError("marks are few, short, and waited for")
            (seconds, logged), now_ns = self.meet(rank, len(state.marks)), time.monotonic_ns()
            state.marks.append(Mark(rank, header["label"] + "", now_ns, now_ns, logged))
            self._held[rank] = now_ns / 1e9 + seconds
        elif header["kind"] == "finished":
            state.finished = state.failure is None

    def _agent_left(self) -> None:
        """Nobody reports deaths any more. After a clean end all are known; otherwise the ranks went with the agent."""
        for rank, state in enumerate(self.ranks):
            if state.status is None:
                state.status = -signal.SIGKILL
                text = "ended, because the helper process that starts ranks is gone"
                if not state.finished and not state.failure:
                    state.failure = Failure(rank, "killed", "", text, "", time.monotonic_ns())

    def _died(self, rank: int, status: int, reason: str = "") -> None:
        state = self.ranks[rank]
        state.status = status
        # Its last words may still be in the channel.
        with contextlib.suppress(OSError):
            while data := state.channel.recv(1 << 18):
                self._take(rank, data)
        if state.finished or state.failure:
            return
        kind, name = "ended", ""
        if reason:  # more is known than how its process ended
            kind, text = "killed", f"ended: {reason}"
        elif status == LOST_LINE:
            text = "ended: its line to this program was closed, which os.close and os.closerange can do"
        elif status < 0:
            kind = "killed"
            name = signal.Signals(-status).name if -status in set(signal.Signals) else "a real-time signal"
            text = f"was killed by signal {-status} ({name})"
            if status == -signal.SIGKILL and oom_kills() > self._oom_kills:
                text += ", because the machine ran out of memory"
        else:
            text = f"ended (exit code {status}) before it finished"
        state.failure = Failure(rank, kind, name, text, "", time.monotonic_ns())
