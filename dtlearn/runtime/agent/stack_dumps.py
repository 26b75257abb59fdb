"""The stacks of ranks, which they write to a file on a signal; also those do whose interpreter does not answer."""

import time
from collections.abc import Mapping
from pathlib import Path

from ..faults.stacks import SourceReader, Stuck, cpu_seconds, is_stopped, read_stack
from ..machine.patience import TO_DUMP
from ..rank.spec import STACK_SIGNAL, stack_file
from .client import Agent

_STEP = 0.05  # between two looks at what they have written


def dump_stacks(agent: Agent, pids: Mapping[int, int], run_dir: Path, source: SourceReader) -> dict[int, Stuck]:
    """Where ranks run in the learner's code; one that writes nothing in time has an empty stack.

    `pids`: {rank: pid}, those that are asked. `source`: see `stacks.read_stack`.
    """
    files = {rank: stack_file(run_dir, rank) for rank in pids}
    before = {rank: _size(path) for rank, path in files.items()}
    agent.signal(list(pids.values()), STACK_SIGNAL)
    # Until every rank has written, and what it writes is complete: a file that grows is not done.
    sizes, grown = before, False
    patience = agent.patience(TO_DUMP, pids.values())
    while not grown and not patience.over():
        time.sleep(_STEP)
        latest = {rank: _size(path) for rank, path in files.items()}
        grown = latest == sizes and all(latest[rank] > before[rank] for rank in files)
        sizes = latest
    stuck = {}
    for rank, path in files.items():
        frames = read_stack(path, source) if sizes[rank] > before[rank] else ()
        cpu = cpu_seconds(pids[rank]) if frames else None
        stopped = not frames and is_stopped(pids[rank])
        stuck[rank] = Stuck(rank, "runs", "", tuple(map(str, frames)), frames, cpu, stopped)
    return stuck


def _size(path: Path) -> int:
    """Bytes in a file; 0 if it is not there."""
    try:
        return path.stat().st_size
    except OSError:
        return 0
