"""`run_ranks`: run one function on every rank of a fresh group."""

from __future__ import annotations

import contextlib
import math
import signal
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import pickles, wire
from .agent.client import AgentClient, get_agent
from .agent.collector import Collector
from .agent.start import start_ranks
from .device import Placement, check_world_size, place
from .errors import RankError
from .link.link import Link, connect
from .machine.isolation import Isolation
from .machine.limits import Limits
from .machine.run_folder import run_directory
from .pickles import notebook_sources
from .rank.spec import call_log_file
from .record.log import merge_logs, read_rank_log
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
    """

    values: list[Any]
    output: list[str]
    placement: Placement
    seconds: float
    _record: Record | None = field(default=None, repr=False)

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
    timeout: float = 60.0,
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
    agent = get_agent()
    placement = connect(place(size, agent.hello()["num_gpus"], device), link)
    with run_directory() as run_dir:
        collector = start_ranks(agent, "run", placement, run_dir, timeout + 30, None, isolation, limits)
        try:
            task = {"init_group": init_group, "sources": notebook_sources(), "link": link and link.to_plain()}
            collector.tell_all(wire.encode(task, blob))
            watch = Watch({r: call_log_file(run_dir, r) for r in range(size)}, CALM)
            at_fault = fault_finder(agent, collector, run_dir, watch)
            in_time = collector.wait(time.monotonic() + timeout, at_fault)
            error = find_error(agent, collector, run_dir, watch, None if in_time else timeout)
            end_run(agent, collector)
        except BaseException:  # an interrupt of the notebook, say: nothing may be left running
            agent.abandon(str(run_dir))
            with contextlib.suppress(KeyboardInterrupt):  # one more: it goes on without us
                collector.wait_for_deaths(time.monotonic() + 3)
            raise
        finally:
            collector.close()
        output = [s.output.text() for s in collector.ranks]
        faults = collector.faults()
        events = read_record(run_dir, size, placement.where, faults) if record else None
        if error is not None:
            error.record = events
            if faults:
                error.add_note(incomplete(faults))
            raise error
        if record and faults:
            warnings.warn(incomplete(faults), stacklevel=2)
    values = [pickles.unpack(s.result or b"") for s in collector.ranks]
    return RunResult(values, output, placement, time.monotonic() - begun, events)


def read_record(run_dir: Path, world_size: int, label: str, faults: Mapping[int, str]) -> Record:
    """The record of a run that has ended. `faults`: see `Collector.faults`."""
    logs = [read_rank_log(call_log_file(run_dir, r), r, faults.get(r, "")) for r in range(world_size)]
    return merge_logs(world_size, logs, label)


def end_run(agent: AgentClient, collector: Collector) -> None:
    """Let finished ranks go, end the others, and wait until none is left."""
    pids = [s.pid for s in collector.ranks]
    if all(s.finished for s in collector.ranks):
        for state in collector.ranks:
            with contextlib.suppress(OSError):
                state.channel.send(b"!")
        collector.wait_for_deaths(time.monotonic() + 2)
    # Also after a clean end: processes that a rank started and left behind are in its group.
    agent.signal(pids, signal.SIGKILL, group=True)
    if not collector.wait_for_deaths(time.monotonic() + 10):
        alive = agent.signal(pids, 0)
        raise RankError(f"ranks with the process ids {alive} could not be ended; the machine may be out of memory")
