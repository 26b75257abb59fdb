"""What ranks behind a notebook do now, a cell or a request: what has come of it, and where each rank stands."""

from __future__ import annotations

import linecache
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import zmq

from ..faults.diagnosis import Diagnosis
from ..faults.failure import Failure
from ..faults.stacks import Frame, Stuck, cpu_seconds, read_stack
from ..rank.spec import stack_file
from ..watch.stalls import APART, Pace, judge, waiting_line
from ..watch.timeouts import file_size, with_call
from ..watch.watch import CALM, Watch
from .incomplete import cell_faults
from .rank_client import RankLink, ask_all

if TYPE_CHECKING:
    from .world import World

_PATIENCE = 10.0  # seconds that other ranks may go on computing after one has failed
_AFTER_DEATH = 1.0  # seconds in which ranks usually notice by themselves that a peer has died
_HOST_LOST = 3.0  # seconds in which the head of a lab notices that a host is gone: three heartbeats
_STUCK_FOR = 0.5  # seconds inside one communication call, after a failure elsewhere, that count as stuck


class Running:
    """What ranks of a world have been asked to do, and what is known of it so far.

    Args:
        world: the ranks.
        ranks: global ranks that were asked.
        task: its number; what a rank says of itself tells by it whether it has begun and ended this.
        logs: the call logs to watch; none if what is done hardly communicates.
    """

    def __init__(self, world: World, ranks: list[int], task: int, logs: Mapping[int, Path]) -> None:
        self.world, self.task = world, task
        self._run_dir = world.call_logs()[0].parent
        self.links: dict[int, RankLink] = {r: world.links[r] for r in ranks}
        self.replied: dict[int, dict[str, Any]] = {}
        self.failures: list[Failure] = []
        self.watch = Watch(logs, CALM)
        self._pace = Pace()
        self._noticed = False
        for link in self.links.values():  # a reply that an earlier, interrupted request left behind
            for _ in link.replies():
                pass

    def pending(self) -> list[int]:
        """Ranks that live and have not ended this."""
        dead = {f.rank for f in self.failures if f.kind != "raised"}
        return [r for r in self.links if r not in dead and not self.done(r)]

    def done(self, rank: int) -> bool:
        """Whether everything has come that this rank had to say."""
        return rank in self.replied

    def ended(self) -> set[int]:
        """Ranks that will make no further call in this; those that were not asked never make one."""
        return set(range(self.world.size)) - set(self.pending())

    def hear(self, rank: int, link: RankLink) -> None:
        """Take in what a rank has sent."""
        raise NotImplementedError

    def notice(self, text: str) -> None:
        """Show a line on how it stands, in the place of the last one; "" takes it away."""

    def source(self, file: str) -> str:
        """The text of a file that exists on the ranks only; "" if unknown."""
        return ""

    def in_step(self) -> bool:
        """Whether all ranks made the same collective calls, so that the groups can be used on."""
        raise NotImplementedError

    def follow(self, deadline: float | None) -> bool:
        """Listen until all ranks are done, or stuck, or found at fault. False: the deadline came first."""
        poller = zmq.Poller()
        for link in self.links.values():
            poller.register(link.iopub, zmq.POLLIN)
            poller.register(link.shell, zmq.POLLIN)
        for collector in {p.collector for p in self.world.processes}:
            poller.register(collector.fileno(), zmq.POLLIN)
        failed_at: float | None = None
        next_look = 0.0
        while self.pending():
            poller.poll(50)
            self.listen()
            now = time.monotonic()
            if self.failures and self.pending():
                failed_at = failed_at or now
                died = any(f.kind != "raised" for f in self.failures)
                if now > failed_at + (_AFTER_DEATH if died else _PATIENCE):
                    return True
                # Ranks that lost a peer tell of it sooner than the peer's host is missed.
                missing = self.world.lab and not died and all(f.consequence for f in self.failures)
                if now > max(next_look, failed_at + (_HOST_LOST if missing else _STUCK_FOR)):
                    next_look = now + _STUCK_FOR
                    self.watch.look(self.ended())
                    if all(s.state != "running" for s in self.where()):
                        return True
            elif self.watch.look(self.ended()) is not None and not cell_faults(self.world):
                return True
            else:
                self._tell()
            if deadline is not None and now > deadline:
                return False
        return True

    def _tell(self) -> None:
        """Say who waits for whom, if that has lasted for long."""
        longest = max((wait.seconds for wait in self.watch.waiting().values()), default=0.0)
        if self._pace.due(longest):
            self._noticed = True
            self.notice(waiting_line(self.where(patience=0.3), longest))
        elif self._noticed and not longest:
            self._noticed = False
            self.notice("")

    def wait(self, seconds: float) -> None:
        """Listen for a while, or until all ranks are done."""
        deadline = time.monotonic() + seconds
        while self.pending() and time.monotonic() < deadline:
            self.listen()
            time.sleep(0.01)

    def listen(self) -> None:
        """Take in what has arrived: what ranks say, and deaths."""
        for rank, link in self.links.items():
            self.hear(rank, link)
        self.world.listen()
        known = {f.rank for f in self.failures if f.kind != "raised"}
        for rank in self.links:
            told = self.world.processes[rank].death
            if told is not None and rank not in known:
                self.failures.append(Failure(rank, told.kind, told.type, told.message, "", told.time_ns))

    def where(self, patience: float = 1.0) -> list[Stuck]:
        """Where each rank stands; those that are not done are asked on the side channel, with `patience` seconds."""
        pending = self.pending()
        replies = ask_all([self.links[r] for r in pending], {"do": "state"}, timeout=patience, side=True)
        told = {rank: reply[0] if reply else None for rank, reply in zip(pending, replies, strict=True)}
        waiting = self.watch.waiting()
        silent = self._dumps([rank for rank, reply in told.items() if reply is None])
        stuck = []
        for rank in self.links:
            reply = told.get(rank)
            if rank not in pending:
                one = Stuck(rank, "returned")
            elif reply is None:
                one = silent[rank]
            elif reply["ended"] >= self.task:
                # An interrupt that arrived just as it ended has swallowed the reply.
                self.missed(rank)
                one = Stuck(rank, "returned")
            elif reply["begun"] < self.task:
                one = Stuck(rank, "running", "", ("what it did before: it has not begun this yet",))
            else:
                frames = tuple(map(_frame, reply["frames"]))
                one = Stuck(rank, "running", "", tuple(map(str, frames)), frames, reply["cpu_seconds"])
                if reply["inside"]:
                    quote = f": {frames[-1].code}" if frames and _ends_with(reply["inside"], frames[-1]) else ""
                    one = replace(one, state="waiting", call=reply["inside"] + quote)
            stuck.append(with_call(one, waiting.get(rank)))
        return stuck

    def missed(self, rank: int) -> None:
        """This rank has ended it, but its reply was lost."""
        self.replied.setdefault(rank, {"metadata": {}})

    def _dumps(self, ranks: list[int]) -> dict[int, Stuck]:
        """Ranks whose interpreter does not answer, from the stacks that they write on a signal."""
        if not ranks:
            return {}
        files = {rank: stack_file(self._run_dir, rank) for rank in ranks}
        before = {rank: file_size(path) for rank, path in files.items()}
        self.world.dump_stacks(ranks)
        time.sleep(0.1)
        found = {}
        for rank, path in files.items():
            frames = read_stack(path, self.source) if file_size(path) > before[rank] else ()
            places = tuple(map(str, frames)) or ("a place that keeps it from answering",)
            cpu = cpu_seconds(self.world.processes[rank].pid) if frames else None
            found[rank] = Stuck(rank, "running", "", places, frames, cpu)
        return found

    def judged(self) -> tuple[list[Stuck], Diagnosis]:
        """Two looks at ranks that did not end in time: how they stand, and what that says."""
        first = self.where()
        self.wait(APART)
        self.watch.look(self.ended())
        second = self.where()
        calls = {rank: wait.event for rank, wait in self.watch.waiting().items()}
        return second, judge(first, second, calls)


def _frame(told: dict[str, Any]) -> Frame:
    """A frame as a rank tells it. Functions of the notebook have their source here."""
    loop = tuple(told["loop"]) if told["loop"] else None
    code = told["code"] or linecache.getline(told["file"], told["line"]).strip()
    return Frame(told["file"], told["line"], told["name"], code, loop, told["inside"])


def _ends_with(inside: str, frame: Frame) -> bool:
    return inside.endswith(f", line {frame.line}")
