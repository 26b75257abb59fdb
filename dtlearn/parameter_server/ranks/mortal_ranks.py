"""Ranks that may die without ending the others, and may be started again: for runs in which ranks are killed.

`run_ranks` ends all ranks when one fails, as torchrun does. A job with a parameter server outlives a worker.

A killed process is the kindest fault: its kernel closes its sockets, so that the others learn of it at once. A machine
without power or a network that is cut says nothing. That takes a timeout, or heartbeats, which are not here.
"""

from __future__ import annotations

import os
import pickle
import signal
import time
import traceback
from collections.abc import Callable, Collection
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import torch.distributed as dist

from dtlearn.runtime.recording.python_calls import PYTHON_CALLS


class EndOfRank(NamedTuple):
    """How a rank ended.

    Attributes:
        value: what its function returned; None if it did not.
        error: what it raised, as a traceback ends with it; "" if nothing.
        signal: that ended it, such as SIGKILL; 0 if none did.
        starts: how often it was started.
    """

    value: Any
    error: str
    signal: int
    starts: int


def run_mortal_ranks(
    fn: Callable[[int, int], Any],
    world_size: int,
    folder: Path,
    *,
    restart: Collection[int] = (),
    timeout: float = 120.0,
) -> list[EndOfRank]:
    """Run `fn(rank, start)` in forked processes until each has ended. Returns how, by rank.

    Call it where no process group is: `run_ranks(lambda: run_mortal_ranks(...), 1, init_group=False)`. The ranks make
    their group themselves, see `join_world`.

    Args:
        fn: gets the rank, and how often it was started before.
        world_size: number of ranks.
        folder: for their results; empty.
        restart: ranks that are started once more when a signal ends them.
        timeout: seconds; then those that are left are killed.
    """
    starts = dict.fromkeys(range(world_size), 1)
    running = {_fork(fn, rank, 0, folder): rank for rank in range(world_size)}
    signals, deadline = dict.fromkeys(range(world_size), 0), time.monotonic() + timeout
    while running:
        pid, status = next((ended for ended in map(_ended, running) if ended[0]), (0, 0))
        if pid:
            rank = running.pop(pid)
            signals[rank] = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
            if signals[rank] and rank in restart and starts[rank] == 1:
                running[_fork(fn, rank, 1, folder)] = rank
                starts[rank] += 1
        elif time.monotonic() > deadline:
            for pid in running:
                os.kill(pid, signal.SIGKILL)
            deadline = float("inf")
        else:
            time.sleep(0.01)
    return [_outcome(folder, rank, signals[rank], starts[rank]) for rank in range(world_size)]


def join_world(rank: int, world_size: int, folder: Path, world: int, timeout: float = 60.0) -> None:
    """Meet all ranks in a new default group, gloo's, after leaving the one before it.

    Args:
        world: how often they have met before: each time another file.
        timeout: seconds that a rank waits for the others.

    Raises:
        RuntimeError: they have not come.
    """
    if dist.is_initialized():
        dist.destroy_process_group()
    store = dist.FileStore(str(folder / f"world-{world}"), world_size)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size, timeout=timedelta(seconds=timeout))


def _fork(fn: Callable[[int, int], Any], rank: int, start: int, folder: Path) -> int:
    if pid := os.fork():
        return pid
    code = 1
    try:
        PYTHON_CALLS.detach()  # the call log is that of the process that this one was forked from
        result = fn(rank, start), ""
        code = 0
    except BaseException as error:
        result = None, "".join(traceback.format_exception_only(error))
    finally:
        (folder / f"outcome-{rank}").write_bytes(pickle.dumps(result))
        os._exit(code)


def _ended(pid: int) -> tuple[int, int]:
    return os.waitpid(pid, os.WNOHANG)


def _outcome(folder: Path, rank: int, ended_by: int, starts: int) -> EndOfRank:
    file = folder / f"outcome-{rank}"
    value, error = pickle.loads(file.read_bytes()) if file.exists() else (None, "")
    return EndOfRank(value, error, ended_by, starts)
