"""`run_ranks`: run one function on every rank of a fresh group."""

import contextlib
import math
import signal
import socket
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from types import TracebackType
from typing import Any, Self

from . import pickles, wire
from .agent.client import get_agent
from .agent.stack_dumps import dump_stacks
from .agent.start import start_ranks
from .device import Placement, check_world_size
from .errors import RankError, RanksTimeout
from .faults.failure import Failure
from .faults.stacks import SourceReader, Stuck, no_source
from .link.link import Link
from .machine.isolation import Isolation
from .machine.limits import Limits
from .machine.patience import TO_BE_ENDED, TO_LEAVE, TO_RUN_ON_FRESH_RANKS, TO_VANISH, Patience
from .machine.run_folder import run_directory
from .pickles import notebook_sources
from .rank.spec import call_log_file
from .record.log import merge_logs, read_rank_log
from .record.rank_file import Tampered, read_rank_file
from .record.record import Record
from .watch.verdict import fault_finder, find_error
from .watch.watch import CALM, Watch
from .words import incomplete


@dataclass(frozen=True)
class RunResult:
    """What came back from a run.

    Attributes:
        values: return value of each rank; `result[r]` is that of rank r.
        output: bounded text that each rank printed, stdout and stderr as they came.
        placement: backend, devices, and why.
        seconds: wall time from the call to the last rank's end.
        advice: what went well on gloo and NCCL would not forgive, see `watch/nccl_rules.py`; none of a run on NCCL.
    """

    values: list[Any]
    output: list[str]
    placement: Placement
    seconds: float
    _record: Record | None = field(default=None, repr=False)
    advice: tuple[str, ...] = ()

    def __getitem__(self, rank: int) -> Any:
        return self.values[rank]

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values)

    @property
    def record(self) -> Record:
        """The recorded communication. Raises ValueError if the run was not recorded."""
        if self._record is None:
            raise ValueError("this run was not recorded: call run_ranks(..., record=True)")
        return self._record


def run_ranks(
    fn: Callable[..., Any],
    world_size: int,
    *args: Any,
    device: str = "auto",
    timeout: float = TO_RUN_ON_FRESH_RANKS,
    record: bool = False,
    init_group: bool = True,
    isolation: Isolation | None = None,
    limits: Limits | None = None,
    link: Link | None = None,
) -> RunResult:
    """Run `fn(*args)` on `world_size` ranks, each a process of its own, and wait for all of them.

    `fn` finds `torch.distributed` initialised, `RANK`, `LOCAL_RANK` and `WORLD_SIZE` in the environment, one torch
    thread, and its device as `dtlearn.device()`. It may be defined in a notebook cell. Ranks are forked from a
    helper process that has torch loaded; they meet through a file, use no fixed port, and do not outlive this call.
    They share its seed of `hash()`: a set of strings has one order on all ranks, which it has not under torchrun.

    Args:
        fn: called on every rank.
        world_size: number of ranks, 1 to 64.
        args: handed to `fn`; each rank gets a copy.
        device: "auto" (NCCL if every rank has a GPU, otherwise gloo on CPU), "cpu" or "cuda".
        timeout: seconds, from when the ranks are started. Then every rank is stopped and the error says where each
            one stood.
        record: keep the record of all communication in `result.record`.
        init_group: False: `fn` makes the default group itself.
        isolation: how the ranks are shut in; None: nothing that they start outlives this call (level 1).
        limits: what each rank may use; None: an equal share of the memory, see `default_limits`.
        link: emulate this interconnect: see `Link`. None: none.

    Raises:
        ValueError: wrong `world_size`, `device`, `timeout` or `link`.
        NotSendable: `fn`, an argument or a result cannot travel between processes.
        RankError: a rank failed; the first cause comes first. RanksDisagree: their calls do not fit together.
        RanksTimeout: the time was up.
        LaunchError: the ranks could not be started.
    """
    size = check_world_size(world_size)
    if not callable(fn):
        raise ValueError(f"run_ranks needs a function to call on every rank; got {type(fn).__name__}")
    if not isinstance(timeout, int | float) or not 0 < timeout < math.inf:
        raise ValueError(f"timeout must be a positive number of seconds; got {timeout!r}")
    blob = pickles.pack((fn, args), f"the function {getattr(fn, '__name__', fn)!r} or one of its arguments")
    begun = time.monotonic()
    placement = get_agent().place(size, device, link)
    task = {"init_group": init_group, "sources": notebook_sources(), "link": link and asdict(link)}
    with Run(placement, timeout + 30, isolation=isolation, limits=limits) as run:
        run.begin(task, blob, timeout)
        error = run.finish()
        events = run.record(placement.where) if record else None
    faults = run.log_faults()
    if error is not None:
        error.record = events
        if faults:
            error.add_note(incomplete(faults))
        raise error
    if record and faults:
        warnings.warn(incomplete(faults), stacklevel=2)
    values = [pickles.unpack(result or b"") for result in run.results]
    advice = tuple(run.watch.advice.values()) if placement.backend != "nccl" else ()
    return RunResult(values, list(run.printed().values()), placement, time.monotonic() - begun, events, advice)


class Run:
    """Fresh ranks for one function, or several. When the block of its `with` is left, nothing of them is left.

    Args:
        group_timeout: seconds after which a collective gives up by itself: longer than all else.
        isolation, limits: as for `run_ranks`.
        source: see `stacks.read_stack`.
        calm: see `Watch`.
        patient: time in which ranks wait for a processor does not count, see `Patience`.

    Raises:
        LaunchError: the ranks could not be started.
    """

    def __init__(
        self,
        placement: Placement,
        group_timeout: float,
        *,
        isolation: Isolation | None = None,
        limits: Limits | None = None,
        source: SourceReader = no_source,
        calm: float = CALM,
        patient: bool = False,
    ) -> None:
        self.starved = False  # whether the time was up because the machine was too busy
        self.tasks = 0  # how many these ranks were given
        self._source, self._calm, self._agent, self._patient = source, calm, get_agent(), patient
        with contextlib.ExitStack() as closing:
            self._run_dir = closing.enter_context(run_directory())
            self._collector = start_ranks(
                self._agent, "run", placement, self._run_dir, group_timeout, None, isolation, limits
            )
            closing.callback(self._collector.close)
            closing.push(self._leave)
            self.limits = self._collector.limits
            self._closing = closing.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self._closing.__exit__(*error)

    def begin(
        self,
        task: dict[str, Any],
        blob: bytes | Sequence[bytes],
        timeout: float,
        hold: Callable[[int, int], float] | None = None,
    ) -> None:
        """Give the ranks a task, their first, or another after `finish` found nothing wrong and kept them.

        Args:
            task, blob: what the ranks are told, see `rank.task`; of several blobs each rank is told its own only.
            timeout: as for `run_ranks`.
            hold: `hold(rank, k)`: seconds until the k-th mark of a rank is answered; None: no rank has marks.
        """
        if self.tasks:
            self._collector.begin_again()
        ranks = range(len(self._collector.ranks))
        self._logs = {rank: call_log_file(self._run_dir, rank, self.tasks) for rank in ranks}
        self._timeout, self.tasks = timeout, self.tasks + 1
        self._collector.meet = hold and (lambda r, k: (hold(r, k), read_rank_file(self._logs[r]).count(b"\n")))
        self.watch = Watch(self._logs, self._calm)
        blobs = [blob] * len(ranks) if isinstance(blob, bytes) else blob
        self._collector.tell_all([wire.encode(task, own) for own in blobs])

    def finish(self, keep: bool = False) -> RankError | RanksTimeout | None:
        """Wait until the ranks have done their task, or one failed, or they are at fault, or the time is up.

        Then end them, unless nothing went wrong and they are to be kept. Returns what went wrong; None if nothing did.
        """
        patience = Patience(self._timeout, [s.pid for s in self._collector.ranks] if self._patient else [])
        left, find = self._timeout, fault_finder(self)
        while not (in_time := self._collector.wait(time.monotonic() + left, find)):
            if not self._patient or not (left := patience.left()):
                break
        self.starved = self._patient and patience.starved
        error = find_error(self, None if in_time else self._timeout)
        if error or not keep:
            self._end()
        else:
            self._collector.listen(0)  # to what they printed last
        return error

    @property
    def results(self) -> list[bytes | None]:
        """What each rank sent back; None if it sent nothing."""
        return [s.result for s in self._collector.ranks]

    def record(self, label: str) -> Record:
        """What the ranks communicated. Its files go when the block is left."""
        faults = self.log_faults()
        marks = [state.marks for state in self._collector.ranks]
        logs = [read_rank_log(path, rank, faults.get(rank, ""), marks[rank]) for rank, path in self._logs.items()]
        return replace(merge_logs(len(logs), logs, label), marks=tuple(mark for own in marks for mark in own))

    # What the verdict asks; see `verdict.WatchedRanks`.

    def ended(self) -> set[int]:
        ranks = enumerate(self._collector.ranks)
        return {rank for rank, s in ranks if s.finished or s.failure or s.status is not None}

    def failures(self) -> tuple[Failure, ...]:
        return self._collector.failures()

    def log_faults(self) -> Mapping[int, str]:
        return {rank: s.fault for rank, s in enumerate(self._collector.ranks) if s.fault}

    def waiting(self) -> Mapping[int, str]:
        ended = self.ended()
        return {rank: wait.text for rank, wait in self.watch.waiting().items() if rank not in ended}

    def look(self) -> list[Stuck]:
        ranks = self._collector.ranks
        pids = {rank: s.pid for rank, s in enumerate(ranks) if s.status is None and not s.finished}
        running = dump_stacks(self._agent, pids, self._run_dir, self._source)
        return [running.get(rank) or Stuck(rank, "ended") for rank in range(len(ranks))]

    def wait(self, seconds: float) -> None:
        self._collector.listen_for(seconds)

    def printed(self) -> dict[int, str]:
        return {rank: s.output.text() for rank, s in enumerate(self._collector.ranks)}

    def _end(self) -> None:
        """Let finished ranks go, end the others, and wait until none is left."""
        collector = self._collector
        pids = [s.pid for s in collector.ranks]
        if all(s.finished for s in collector.ranks):
            for state in collector.ranks:
                with contextlib.suppress(OSError):
                    state.channel.shutdown(socket.SHUT_WR)
            collector.wait_for_deaths(TO_LEAVE)
        # Also after a clean end: processes that a rank started and left behind are in its group.
        self._agent.signal(pids, signal.SIGKILL, group=True)
        if not collector.wait_for_deaths(TO_VANISH):
            alive = self._agent.signal(pids, 0)
            raise RankError(f"ranks with the process ids {alive} could not be ended; the machine may be out of memory")

    def _leave(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        ranks = self._collector.ranks
        with contextlib.suppress(Tampered):  # what ranks write that have finished is of no interest
            if kind is None and any(s.status is None for s in ranks):
                self._end()
        if any(s.status is None for s in ranks):  # after an interrupt of the notebook, say, nothing may go on
            self._agent.abandon(str(self._run_dir))
            with contextlib.suppress(KeyboardInterrupt, Tampered):  # one more: it goes on without us
                self._collector.wait_for_deaths(TO_BE_ENDED)
