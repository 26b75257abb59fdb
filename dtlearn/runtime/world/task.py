"""What ranks behind a notebook do now, a cell or a request: what has come of it, and where each rank stands."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import zmq

from ..agent.stack_dumps import dump_stacks
from ..faults.failure import Failure, first_cause_first
from ..faults.stacks import Stuck
from ..machine.patience import AFTER_DEATH, AFTER_FAILURE, STUCK_FOR, TO_ANSWER, TO_ANSWER_BRIEFLY, Patience
from ..watch.stalls import Pace, waiting_line
from ..watch.verdict import with_calls
from ..watch.watch import CALM, Watch
from .rank_client import RankClient
from .ranks import RankProcesses
from .standing import Standing, ask_standing


class Task:
    """What some ranks of a world have been asked to do, and what is known of it so far: `verdict.WatchedRanks` of it.

    `logged`: their calls are logged anew and watched; False: what they do hardly communicates.
    """

    def __init__(self, ranks: RankProcesses, asked: list[int], *, logged: bool) -> None:
        self.ranks = ranks
        self.clients: dict[int, RankClient] = {rank: ranks.clients[rank] for rank in asked}
        # What a rank says of itself tells by this number whether it has begun and ended this.
        self.number = ranks.begin_task(asked, logged)
        self.limits = ranks.limits
        self.replied: set[int] = set()
        self.counts: dict[int, dict[str, Any]] = {}  # by rank that replied, how many calls it made
        self.failed: list[Failure] = []  # as they were heard of
        self.watch = Watch(ranks.call_logs() if logged else {}, CALM)
        self._pace = Pace()
        self._noticed = False
        for client in self.clients.values():  # a reply that an earlier, interrupted request left behind
            for _ in client.replies():
                pass

    def pending(self) -> list[int]:
        """Ranks that live and have not ended this."""
        dead = self._dead()
        return [r for r in self.clients if r not in dead and not self.done(r)]

    def done(self, rank: int) -> bool:
        """Whether everything has come that this rank had to say."""
        return rank in self.replied

    def ended(self) -> set[int]:
        """Ranks that will make no further call in this; those that were not asked never make one."""
        return set(range(self.ranks.size)) - set(self.pending())

    def failures(self) -> tuple[Failure, ...]:
        """How ranks failed, the first cause first."""
        return first_cause_first(self.failed)

    def log_faults(self) -> dict[int, str]:
        """{rank: why its call log is incomplete}."""
        return self.ranks.log_faults()

    def printed(self) -> None:
        """Nothing is kept of what the ranks print: it has been shown."""

    def hear(self, rank: int, client: RankClient) -> None:
        """Take in what a rank has sent."""
        raise NotImplementedError

    def notice(self, text: str) -> None:
        """Show a line on how it stands, in the place of the last one; "" takes it away."""

    def source(self, file: str) -> str:
        """The text of a file that exists on the ranks only; "" if unknown."""
        return ""

    def in_step(self) -> bool:
        """Whether all ranks made the same collective calls, so that the groups can be used on."""
        diagnosis = self.watch.diagnosis
        if diagnosis is not None and diagnosis.code != "DTL-ASYNC-WAIT":  # nobody should trust groups that did not fit
            return False
        counts = list(self.counts.values())
        if len(counts) < len(self.clients) or any(c["others"] for c in counts):
            return False
        return not any(c["calls"] for c in counts) or len({(c["collectives"], c["sequence"]) for c in counts}) == 1

    def follow(self, over: Callable[[], bool]) -> bool:
        """Listen until all ranks are done, or stuck, or found at fault. False: the time was `over` first."""
        poller = zmq.Poller()
        for client in self.clients.values():
            poller.register(client.iopub, zmq.POLLIN)
            poller.register(client.shell, zmq.POLLIN)
        for collector in self.ranks.collectors():
            poller.register(collector.fileno(), zmq.POLLIN)
        known = None  # of the failures so far
        while self.pending():
            poller.poll(50)
            self.listen()
            if not self.pending():
                break
            if self.failed:
                died = bool(self._dead())
                # Ranks that lost a peer tell of it sooner than the peer's host is missed.
                missing = not died and all(f.consequence for f in self.failed)
                if known != (died, missing):
                    known = (died, missing)
                    loss = self.ranks.agent.seconds_to_notice_a_loss * missing
                    may_go_on = self.patience(AFTER_DEATH if died else AFTER_FAILURE + loss)
                    next_look = self.patience(max(STUCK_FOR, loss))
                if may_go_on.over():
                    return True
                if next_look.over():
                    next_look = self.patience(STUCK_FOR)
                    self.watch.look(self.ended())
                    if all(s.state != "runs" for s in self.where()):
                        return True
            elif self.watch.look(self.ended()) is not None and not self.log_faults():
                return True
            else:
                self._tell()
            if over():
                return False
        return True

    def _dead(self) -> set[int]:
        return {f.rank for f in self.failed if f.kind != "raised"}

    def _tell(self) -> None:
        """Say who waits for whom, if that has lasted for long."""
        longest = max((wait.seconds for wait in self.watch.waiting().values()), default=0.0)
        if self._pace.due(longest):
            self._noticed = True
            self.notice(waiting_line(self.where(TO_ANSWER_BRIEFLY), longest))
        elif self._noticed and not longest:
            self._noticed = False
            self.notice("")

    def patience(self, seconds: float) -> Patience:
        """A patience of so many seconds for ranks that have not ended this, more where they cannot get a processor."""
        return self.ranks.patience(seconds, self.pending())

    def wait(self, seconds: float) -> None:
        """Listen for a while, or until all ranks are done."""
        patience = self.patience(seconds)
        while self.pending() and not patience.over():
            self.listen()
            time.sleep(0.01)

    def listen(self) -> None:
        """Take in what has arrived: what ranks say, and deaths."""
        for rank, client in self.clients.items():
            self.hear(rank, client)
        self.ranks.listen()
        known = self._dead()
        for rank in self.clients:
            death = self.ranks.processes[rank].death
            if death is not None and rank not in known:
                self.failed.append(Failure(rank, death.kind, death.type, death.message, "", death.time_ns))

    def where(self, seconds: float = TO_ANSWER) -> list[Stuck]:
        """As `look`, with the calls that the log shows ranks to wait in."""
        return with_calls(self.look(seconds), self.watch)

    def waiting(self) -> dict[int, str]:
        """{rank: the call that it waits in}."""
        return {s.rank: s.call for s in self.where() if s.state == "waits"}

    def look(self, seconds: float = TO_ANSWER) -> list[Stuck]:
        """Where each rank stands; those that are not done are asked on the side channel.

        One that says nothing at once, because its code holds the interpreter or it was stopped, is known by its stack;
        only one that is in none of the learner's code is asked again, with so much patience.
        """
        brief = min(seconds, TO_ANSWER_BRIEFLY)
        standings = {s.rank: s for s in ask_standing(self.ranks, self.pending(), seconds=brief)}
        dumps = self._dumps([rank for rank, s in standings.items() if s.cpu_seconds is None])
        unclear = [rank for rank, s in dumps.items() if not s.frames and not s.stopped]
        if unclear and seconds > brief:
            again = {s.rank: s for s in ask_standing(self.ranks, unclear, seconds=seconds - brief)}
            standings |= again
            dumps = {r: s for r, s in dumps.items() if r not in again or again[r].cpu_seconds is None}
        stuck = []
        for rank in self.clients:
            standing = standings.get(rank)
            if standing is None:
                stuck.append(Stuck(rank, "ended"))
            elif rank in dumps:
                stuck.append(dumps[rank])
            elif standing.ended >= self.number:
                # An interrupt that arrived just as it ended has swallowed the reply.
                self.missed(rank)
                stuck.append(Stuck(rank, "ended"))
            elif standing.begun < self.number:
                stuck.append(Stuck(rank, "runs", "", ("what it did before: it has not begun this yet",)))
            else:
                stuck.append(_stuck(standing))
        return stuck

    def missed(self, rank: int) -> None:
        """This rank has ended it, but its reply was lost."""
        self.replied.add(rank)

    def _dumps(self, silent: list[int]) -> dict[int, Stuck]:
        """Ranks whose interpreter does not answer, from the stacks that they write on a signal."""
        if not silent:
            return {}
        pids = {rank: self.ranks.processes[rank].pid for rank in silent}
        dumps = dump_stacks(self.ranks.agent, pids, self.ranks.run_dir, self.source)
        unknown = ("a place that keeps it from answering",)
        return {rank: replace(stuck, stack=stuck.stack or unknown) for rank, stuck in dumps.items()}


def _stuck(standing: Standing) -> Stuck:
    """What a rank that is busy with this says, as the verdict wants it."""
    frames, call = standing.frames, standing.inside
    if call and frames and call.endswith(f", line {frames[-1].line}"):
        call += f": {frames[-1].code}"
    state = "waits" if call else "runs"
    return Stuck(standing.rank, state, call, tuple(map(str, frames)), frames, standing.cpu_seconds)
