"""Ranks that did not end in time: two looks at them, and what these say."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ..agent.client import AgentClient
from ..agent.collector import Collector
from ..errors import RanksTimeout
from ..faults.codes import ADVICE
from ..faults.diagnosis import Diagnosis
from ..faults.stacks import Source, Stuck, cpu_seconds, no_source, read_stack
from ..rank.spec import STACK_SIGNAL, stack_file
from ..record.log_tail import Wait
from ..words import ranks_text
from .stalls import APART, judge, place
from .watch import Watch

_DUMP = 0.3  # seconds that a rank gets to write its stack down


def explain_timeout(
    agent: AgentClient, collector: Collector, run_dir: Path, watch: Watch, timeout: float, source: Source = no_source
) -> RanksTimeout:
    """The error for a run that did not end in time: where every rank stands, from its call log and its stack."""
    before = watch.waiting()
    first = look_at(agent, collector, run_dir, before, source)
    collector.listen_until(time.monotonic() + APART)
    watch.look(collector.ended())
    waiting = watch.waiting()
    second = look_at(agent, collector, run_dir, waiting, source)
    diagnosis = judge(first, second, {rank: wait.event for rank, wait in waiting.items()})
    output = {r: s.output.text() for r, s in enumerate(collector.ranks)}
    moving = bool(waiting) and all(
        rank not in before or before[rank].event.seq != wait.event.seq for rank, wait in waiting.items()
    )
    return RanksTimeout(timeout_message(second, timeout, diagnosis, moving), tuple(second), output, diagnosis)


def look_at(
    agent: AgentClient, collector: Collector, run_dir: Path, waiting: Mapping[int, Wait], source: Source = no_source
) -> list[Stuck]:
    """One look at every rank of a run: the call that it waits in, and its stack."""
    living = {rank: s.pid for rank, s in enumerate(collector.ranks) if s.status is None and not s.finished}
    files = {rank: stack_file(run_dir, rank) for rank in living}
    sizes = {rank: file_size(path) for rank, path in files.items()}
    agent.signal(list(living.values()), STACK_SIGNAL)
    # Until every rank has written, and what it writes is complete: a file that grows is not done.
    latest: dict[int, int] = {}

    def written() -> bool:
        nonlocal latest
        before, latest = latest, {rank: file_size(path) for rank, path in files.items()}
        return before == latest and all(latest[rank] > size for rank, size in sizes.items())

    collector.listen_until(time.monotonic() + _DUMP, written)
    found = []
    for rank in range(len(collector.ranks)):
        if rank not in living:
            found.append(Stuck(rank, "returned"))
            continue
        frames = read_stack(files[rank], source) if latest.get(rank, 0) > sizes[rank] else ()
        cpu = cpu_seconds(living[rank]) if frames else None
        one = Stuck(rank, "running", "", tuple(map(str, frames)), frames, cpu)
        found.append(with_call(one, waiting.get(rank)))
    return found


def with_call(one: Stuck, wait: Wait | None) -> Stuck:
    """A running rank as a waiting one, if it waits in a call of the log, or inside torch for other ranks."""
    if one.state == "running" and wait is not None:
        return replace(one, state="waiting", call=wait.text)
    if one.state == "running" and one.frames and one.frames[-1].inside:
        last = one.frames[-1]
        return replace(one, state="waiting", call=f"{last.inside}, {last}")
    return one


def file_size(path: Path) -> int:
    """Bytes in a file; 0 if it is not there."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def timeout_message(
    stuck: Sequence[Stuck], timeout: float, diagnosis: Diagnosis | None = None, moving: bool = False
) -> str:
    """The text of a time-out: a line per rank, then what the picture suggests.

    Args:
        moving: every rank that waited in a call at the first look waited in a later one at the second.
    """
    lines = [f"the ranks did not finish within {timeout:g} s:"]
    for one in stuck:
        if one.state == "returned":
            lines.append(f"  rank {one.rank} returned")
        elif one.state == "waiting":
            lines.append(f"  rank {one.rank} waits in {one.call}")
        else:
            lines.append(f"  rank {one.rank} is running, at {place(one)}")
    if diagnosis is not None and diagnosis.code != "DTL-TIMEOUT":
        return "\n".join([*lines, f"{diagnosis.headline}.  [{diagnosis.code}]", *ADVICE[diagnosis.code]])
    waiting = [s.rank for s in stuck if s.state == "waiting"]
    returned = [s.rank for s in stuck if s.state == "returned"]
    if waiting and returned:
        lines.append(
            f"{ranks_text(waiting)} waited for a call that {ranks_text(returned)} never made: every rank of a group "
            "has to make the same collective calls in the same order."
        )
    elif waiting and len(waiting) == len(stuck) and moving:
        lines.append(
            "No rank is stuck: between two looks every rank went on to a later call. Can the loop that makes these "
            "calls ever end? If so, raise the time limit."
        )
    elif waiting and len(waiting) == len(stuck):
        lines.append(
            "Every rank waits: compare the calls above; they have to be the same call, or a matching send and recv."
        )
    elif not waiting and returned:
        lines.append(
            "If that line runs a collective inside torch (the backward pass of DistributedDataParallel, FSDP), it "
            f"waits for {ranks_text(returned)}; otherwise the code itself takes this long, or loops."
        )
    elif not waiting:
        lines.append(
            "No rank waits for another: the code itself takes this long, or loops. Raise the time limit or look there."
        )
    return "\n".join(lines)
