"""Ranks that save a checkpoint, of which one is stopped at a moment; and what is left.

The others go on until they need it: a barrier raises where a rank is gone, as a collective does whose connection is
broken. So each moment of each rank can be tried, in processes that live on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch.distributed as dist

from .disk import Content, DiskCall, Stopped, StoppedDisk

Save = Callable[[StoppedDisk, Callable[[], None]], None]  # `save(disk, barrier)`


class RankGone(RuntimeError):
    """A rank that others wait for is dead."""


class SaveRun(NamedTuple):
    """How a save went.

    Attributes:
        calls: of all ranks on the disk; those of the others as far as they came without the rank that was stopped.
        fewest: the same if all ranks were stopped at that moment, and the others had come no further than they must.
        stopped_at: "rank 1 before fsync('x')"; "" if no rank was stopped.
        shared: names that several ranks changed between the same barriers: what comes first is a matter of chance.
        caught: ranks that caught what their barrier raised.
    """

    calls: list[DiskCall]
    fewest: list[DiskCall]
    stopped_at: str
    shared: list[str]
    caught: list[int]


def save_until(save: Save, before: Mapping[str, bytes], victim: int = 0, moments: int | None = None) -> SaveRun:
    """Save on all ranks until one is stopped; all of them call it.

    **Communication**: for each barrier, and at the end, an all-gather of the calls of each rank.

    Args:
        save: of this rank. It has its own way to the disk, and a barrier of all ranks.
        before: files that are there.
        victim: the rank that is stopped.
        moments: of its life, see `StoppedDisk`; None: it is not stopped.

    Raises:
        RuntimeError: a rank waits in a barrier for one that has returned.
    """
    rank = dist.get_rank()
    disk = StoppedDisk(rank, before, moments if rank == victim else None)
    has_raised = has_caught = False  # this rank's barrier; this rank

    def exchange(state: str) -> list[str]:
        all_ranks: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(all_ranks, (state, disk.calls, disk.period, disk.stopped_at))
        disk.seen = [call for _, calls, _, _ in all_ranks for call in calls]
        _, _, last["period"], last["moment"] = all_ranks[victim]
        return [state for state, _, _, _ in all_ranks]

    def barrier() -> None:
        nonlocal has_raised, has_caught
        if disk.stopped_at:
            raise Stopped(disk.stopped_at)
        has_caught = has_raised
        states = exchange("waits")
        if "gone" in states:
            has_raised = True
            raise RankGone(f"rank {states.index('gone')} is gone")
        if "returned" in states:
            other = states.index("returned")
            raise RuntimeError(
                f"rank {rank} waits in barrier(), and rank {other} has returned: call it equally often on all ranks"
            )
        disk.period += 1

    last: dict[str, Any] = {}  # of the victim
    state = "returned"
    try:
        save(disk, barrier)
    except (Stopped, RankGone):
        state = "gone"
    if has_caught or (has_raised and state == "returned"):
        state = "caught"
    while "waits" in (states := exchange(state)):
        pass
    caught = [number for number, one in enumerate(states) if one == "caught"]
    stopped_at = f"rank {victim} {last['moment']}" if last["moment"] else ""
    fewest = [c for c in disk.seen if not stopped_at or c.rank == victim or c.period < last["period"]]
    return SaveRun(disk.seen, fewest, stopped_at, changed_by_several(disk.seen), caught)


def changed_by_several(calls: list[DiskCall]) -> list[str]:
    """Names that two ranks changed in one period."""
    ranks = defaultdict[tuple[int, str], set[int]](set)
    for call in calls:
        if call.verb in ("write", "rename", "remove"):
            for name in filter(None, (call.name, call.to)):
                ranks[call.period, name].add(call.rank)
    return sorted({name for (_, name), by in ranks.items() if len(by) > 1})


def read_back(left: Mapping[str, set[Content]], saved: Mapping[int, list[bytes]]) -> tuple[set[int | None], str]:
    """What a job that goes on finds: the step that `latest` names, and the parts of that step, `step-8/rank0`, ...

    Args:
        left: see `left_after`.
        saved: by step, the part of each rank.

    Returns:
        The steps that may be named, None for no name; and what is wrong, "" if each of them is whole.
    """
    steps = set[int | None]()
    for content in sorted(left.get("latest", {None}), key=str):
        step = next((step for step in saved if content == str(step).encode()), None)
        if content is not None and step is None:
            return steps, f"latest holds {content.decode(errors='replace')!r}, which is no step that was saved"
        steps.add(step)
        for rank, part in enumerate(saved[step] if step is not None else []):
            there = left.get(f"step-{step}/rank{rank}", {None})
            if None in there:
                return steps, f"latest names step {step}, and rank {rank}'s part of it is missing"
            if there != {part}:
                return steps, f"latest names step {step}, and rank {rank}'s part of it is torn"
    return steps, ""
