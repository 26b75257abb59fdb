"""`run_ranks`: run one function on every rank of a fresh group."""

from __future__ import annotations

import contextlib
import linecache
import math
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import transfer, wire
from .agent_client import AgentClient, get_agent
from .calls import read_call_log
from .collect import Collector, RankState
from .device import Placement, check_world_size, place
from .errors import LaunchError, RankError, RanksDisagree, RanksTimeout
from .explain import comes_before, explain_failures, explain_timeout
from .rank_run import call_log_file
from .record import Record, merge
from .watch import Watch


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

    Raises:
        ValueError: wrong `world_size`, `device` or `timeout`.
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
    blob = transfer.pack((fn, args), f"the function {getattr(fn, '__name__', fn)!r} or one of its arguments")
    begun = time.monotonic()
    agent = get_agent()
    placement = place(size, agent.hello()["num_gpus"], device)
    with run_directory() as run_dir:
        collector = start_ranks(agent, "run", placement, run_dir, group_timeout=timeout + 30)
        try:
            task = wire.encode({"init_group": init_group, "sources": _notebook_sources()}, blob)
            collector.tell_all(task)
            watch = Watch({r: call_log_file(run_dir, r) for r in range(size)})
            in_time = collector.wait(time.monotonic() + timeout, lambda: watch.look(collector.ended()) is not None)
            error: RankError | RanksTimeout | None = None
            failures, diagnosis = collector.failures(), watch.last_look(collector.ended())
            if diagnosis and comes_before(diagnosis, failures):
                error = RanksDisagree(diagnosis, output={r: s.output.text() for r, s in enumerate(collector.ranks)})
            elif failures:
                error = explain_failures(failures, collector, run_dir)
            elif not in_time:
                error = explain_timeout(agent, collector, run_dir, timeout)
            _end(agent, collector)
        except BaseException:  # an interrupt of the notebook, say: nothing may be left running
            with contextlib.suppress(LaunchError):
                agent.signal([s.pid for s in collector.ranks], signal.SIGKILL, group=True)
            raise
        finally:
            collector.close()
        output = [s.output.text() for s in collector.ranks]
        events = read_events(run_dir, size, placement.where) if record else None
        if error is not None:
            error.record = events
            raise error
    values = [transfer.unpack(s.result or b"") for s in collector.ranks]
    return RunResult(values, output, placement, time.monotonic() - begun, events)


def new_run_directory() -> Path:
    """A new private directory. Its name is short: names of local sockets are limited to about 100 bytes.

    Raises:
        LaunchError: none can be made.
    """
    try:
        base = tempfile.gettempdir()
        return Path(tempfile.mkdtemp(prefix="dtlearn-", dir=base if len(os.fsencode(base)) < 60 else "/tmp"))
    except OSError as error:
        raise LaunchError(
            f"no temporary folder can be written ({error}). Free some space, or set TMPDIR to a folder that you own."
        ) from error


@contextlib.contextmanager
def run_directory() -> Iterator[Path]:
    """A private directory for one run, deleted afterwards. Raises LaunchError if none can be made."""
    path = new_run_directory()
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def start_ranks(
    agent: AgentClient,
    kind: str,
    placement: Placement,
    run_dir: Path,
    group_timeout: float,
    ranks: list[int] | None = None,
) -> Collector:
    """Start ranks (None: all) of a placement."""
    ranks = list(range(len(placement.devices))) if ranks is None else ranks
    common = {
        "kind": kind,
        "world_size": len(placement.devices),
        "backend": placement.backend,
        "run_dir": str(run_dir),
        "env": dict(os.environ),
        "cwd": _working_directory(),
        "sys_path": [p or os.getcwd() for p in sys.path],
        "group_timeout": group_timeout,
    }
    events_read, events_write = os.pipe()
    states, theirs = [], [events_write]
    for _ in ranks:
        channel, far_channel = socket.socketpair()
        output_read, output_write = os.pipe()
        states.append(RankState(channel, output_read))
        theirs += [far_channel.detach(), output_write]
    try:
        values = [{"rank": r, "device": placement.devices[r]} for r in ranks]
        for state, pid in zip(states, agent.start(common, values, theirs), strict=True):
            state.pid = pid
    except BaseException:
        for state in states:
            state.channel.close()
            os.close(state.output_fd)
        os.close(events_read)
        raise
    finally:
        for descriptor in theirs:
            os.close(descriptor)
    return Collector(states, events_read)


def read_events(run_dir: Path, world_size: int, label: str) -> Record:
    """The record of a run that has ended."""
    return merge(world_size, (read_call_log(call_log_file(run_dir, r), r) for r in range(world_size)), label)


def _working_directory() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError as error:
        raise LaunchError("the current folder was deleted; change to another one and try again") from error


def _end(agent: AgentClient, collector: Collector) -> None:
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


def _notebook_sources() -> dict[str, dict[str, str]]:
    """Source text of notebook cells, which exist in no file: tracebacks and the record quote it."""
    labels = {}
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    if shell is not None:
        labels = dict(getattr(shell.compile, "_filename_map", {}))
    sources = {}
    for name, entry in list(linecache.cache.items()):
        if len(entry) == 4 and entry[1] is None and not name.startswith("<frozen"):
            label = f"Cell In[{labels[name]}]" if name in labels else f'File "{name}"'
            sources[name] = {"text": "".join(entry[2]), "label": label}
    return sources
