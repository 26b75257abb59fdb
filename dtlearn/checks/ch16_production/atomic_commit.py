"""ch16.atomic_commit: ranks that are stopped before and after each call on a disk, within each write, and then read.

`dtlearn.production.practice` has the disk and stops the ranks. The package's own saving is killed for real, after each
call of the operating system, in `tests/production/checkpoints/kills.py`.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from dtlearn.grading import Case, Check, Edit, Given
from dtlearn.runtime.record.record import Record

from ..own_work import find_forbidden
from ..sent import no_stores
from . import MAY_HELP

# Per case: `stops`, whether ranks are stopped, at each moment of each; `power`, whether the power fails, too;
# `old`, whether the old checkpoint goes; `first`, whether there is none yet.
CASES: dict[str, dict[str, Any]] = {
    "nobody is stopped": {},
    "the first checkpoint": {
        "says": "before the first checkpoint there is no file, and latest appears with the first one",
        "first": True,
    },
    "one rank is killed": {
        "says": "until all of the new checkpoint is there, latest names the old one. A rename is one moment",
        **{"stops": True, "sizes": (1,)},
    },
    "a rank of several is killed": {
        "says": "latest moves when the parts of all ranks are there: they meet in a barrier before it, and go on only "
        "if it raises nothing",
        **{"stops": True, "sizes": (2, 3)},
    },
    "the old part goes": {
        "says": "if old is a step, each rank deletes its own part of it, and nothing else; a new name deletes nothing",
        "old": True,
    },
    "a rank is killed, and the old part goes": {
        "says": "the old checkpoint goes when the new one is there, and not before",
        **{"stops": True, "old": True},
    },
    "the power fails": {
        "says": "before latest moves, all that it leads to is on the disk: the bytes of each file, then the names",
        **{"stops": True, "power": True},
    },
    "the power fails, and the old part goes": {
        "says": "before the old part goes, the new name of latest is forced to the disk",
        **{"stops": True, "power": True, "old": True},
    },
}
BARRIER = "    barrier()\n"
PART, SYNC_PART = "    disk.write(name, part)\n", "    disk.fsync(name)\n"
MEET, OLD = "    barrier()\n    if rank == 0:\n", "    barrier()\n    if old is not None:\n"
IF = "    if rank == 0:\n"
NAMES = f"{IF}        disk.fsync_folder()\n"
POINTER = '        disk.write("latest.new", str(step).encode())\n'
SYNC, RENAME = '        disk.fsync("latest.new")\n', '        disk.rename("latest.new", "latest")\n'
LAST = f"{RENAME}        disk.fsync_folder()\n"
GOES = f"{OLD}        disk.remove(f'step-{{old}}/rank{{rank}}')\n".replace("'", '"')
REMOVE = '        disk.remove(f"step-{old}/rank{rank}")\n'
ALL_OLD = """        for number in range(9):
            try:
                disk.remove(f"step-{old}/rank{number}")
            except FileNotFoundError:
                pass
"""
EDITS = (
    Edit("latest never names the new checkpoint", {RENAME: ""}),
    Edit("rank 0 alone saves its part",
         {PART: f"    if rank > 0:\n        barrier()\n        return barrier()\n{PART}"}),
    Edit("latest holds the name of the step's folder: it holds the number of the step",
         {"str(step).encode()": 'f"step-{step}".encode()'}),
    Edit("each rank moves latest: between two barriers one rank changes a file, rank 0", {NAMES: NAMES.replace(
        "rank == 0", "True")}),
    Edit("latest is written in its place: a write is not one moment, and a kill leaves half of it",
         {POINTER: POINTER.replace(".new", ""), SYNC: SYNC.replace(".new", ""), RENAME: ""}),
    Edit("latest moves before this rank's part is there",
         {PART: "", SYNC_PART: "", OLD: f"{PART}{SYNC_PART}{OLD}"}),
    Edit("latest moves before the parts of the other ranks are there: a barrier has to stand before it",
         {MEET: MEET.replace("    barrier()\n", ""), OLD: f"    barrier()\n{OLD}"}),
    Edit("barrier() raises an exception, which is caught: let it through, a rank is dead and its part may be missing",
         {MEET: f"    try:\n    {BARRIER}    except Exception:\n        pass\n{IF}"}),
    Edit("the old part stays", {REMOVE: "        pass\n"}),
    Edit("rank 0 alone deletes its old part", {OLD: OLD.replace("old is", "rank == 0 and old is")}),
    Edit("rank 0 deletes the old parts of all ranks: each deletes its own",
         {OLD: OLD.replace("old is", "rank == 0 and old is"), REMOVE: ALL_OLD}),
    Edit("the old part gets another name, and its bytes stay on the disk: remove it",
         {REMOVE: REMOVE.replace("remove", "rename").replace(")\n", ', f"old-{rank}")\n')}),
    Edit("the old checkpoint is deleted before the new one is written",
         {GOES: "    barrier()\n", PART: f"    if old is not None:\n{REMOVE}{PART}"}),
    Edit("the old part is deleted before latest has moved",
         {GOES: "", MEET: f"{GOES}{MEET}"}),
    Edit("the other ranks delete their old parts while rank 0 moves latest: a barrier has to stand between",
         {OLD: OLD.replace("    barrier()\n", ""), PART: f"    barrier()\n{PART}"}),
    Edit("the bytes of the parts are not forced to the disk before latest moves: fsync", {SYNC_PART: ""}),
    Edit("the bytes of the file that becomes latest are not forced to the disk before it is renamed: fsync",
         {SYNC: ""}),
    Edit("the file that becomes latest is forced to the disk after it was renamed: it has to be before",
         {SYNC: "", RENAME: RENAME + SYNC.replace(".new", "")}),
    Edit("the names of the parts are not forced to the disk before latest moves: fsync_folder", {NAMES: IF}),
    Edit("the names are forced to the disk before all ranks have made theirs: fsync_folder after the barrier",
         {NAMES: IF, MEET: f"{NAMES}{MEET}"}),
    Edit("the new name of latest is not forced to the disk: a power cut takes it back", {LAST: RENAME}),
    Edit("the new name of latest is forced to the disk after the old part was deleted, which may be gone first",
         {LAST: RENAME, REMOVE: f"{REMOVE}    disk.fsync_folder()\n"}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    g, p = case.generator(), case.params
    letters = torch.randint(97, 123, (2 * case.world_size, 8), generator=g).tolist()
    words = ["".join(map(chr, row)) for row in letters]
    now, step = sorted((torch.randperm(80, generator=g)[:2] + 10).tolist())
    saved = {} if p.get("first") else {str(now): words[: case.world_size]}
    saved[str(step)] = words[case.world_size :]
    old = now if p.get("old") else None
    how = {"step": step, "old": old, "saved": saved, "stops": bool(p.get("stops")), "power": bool(p.get("power"))}
    return [how | {"part": part} for part in saved[str(step)]]


def on_rank(answer: Any, step: int, part: str, old: Any, saved: Any, stops: bool, power: bool) -> Any:
    from dtlearn.production.practice.disk import left_after
    from dtlearn.production.practice.stops import read_back, save_until

    rank, ranks = dist.get_rank(), range(dist.get_world_size())
    parts = {int(number): [text.encode() for text in texts] for number, texts in saved.items()}
    before = {f"step-{s}/rank{r}": data for s in parts for r, data in enumerate(parts[s]) if s != step}
    before.update(("latest", str(s).encode()) for s in parts if s != step)
    save = lambda disk, barrier: answer(disk, step, part.encode(), old, rank, barrier)  # noqa: E731
    runs, wrong = [save_until(save, before)], ""
    for victim in ranks if stops else ():
        moments = 0
        while (run := save_until(save, before, victim, moments)).stopped_at:
            runs, moments = [*runs, run], moments + 1
    cuts = (False, True)[: 1 + power]
    for run, power_cut, calls in ((r, cut, calls) for r in runs for cut in cuts for calls in (r.calls, r.fewest)):
        steps, fault = read_back(left_after(before, calls, power_cut=power_cut), parts)
        allowed = {step, *(parts if len(parts) > 1 else [None])} if run.stopped_at else {step}
        if not fault and not steps <= allowed:
            found = (steps - allowed).pop()
            fault = "there is no latest" if found is None else f"latest names step {found}"
        when = f"{'a power cut,' if power_cut else 'a kill of'} {run.stopped_at}"
        when = when if run.stopped_at else f"{'a power cut after' if power_cut else 'when'} all ranks have returned"
        wrong = wrong or (fault and f"{when}: {fault}")
    if caught := next((run.caught for run in runs if run.caught), []):
        wrong = f"rank {caught[0]} catches what barrier() raises, and goes on"
    if runs[0].shared:
        wrong = f"between two barriers several ranks change {runs[0].shared[0]}"
    left = left_after(before, runs[0].calls)
    kept = [f"step-{s}/rank{r}" for s in parts for r in ranks if left.get(f"step-{s}/rank{r}", {None}) != {None}]
    olds = {f"step-{old}/rank{r}": r for r in ranks}
    changed = [(call.rank, call.name) for call in runs[0].calls if call.verb != "fsync" and call.name in olds]
    moved = [name for name in left if name not in olds and left[name] & {*parts.get(old, [])}]
    own = [f"{call.verb} {call.name} {call.to}".strip() for call in runs[0].calls if call.rank == rank]
    print(*[text for at, text in enumerate(own) if text not in own[at + 1 : at + 2]], sep="\n")  # a write is two
    return {
        "a job can go on from": wrong or "a whole checkpoint at every moment",
        "parts afterwards": kept,
        "old parts under other names": moved,
        "old parts that another rank deleted": [name for by, name in changed if by != olds[name]],
    }


def expected(case: Case, given: Given) -> list[Any]:
    own = given[0]
    right = {
        "a job can go on from": "a whole checkpoint at every moment",
        "parts afterwards": [
            f"step-{s}/rank{r}" for s in own["saved"] if s != str(own["old"]) for r in range(case.world_size)
        ],
        "old parts under other names": [],
        "old parts that another rank deleted": [],
    }
    return [right] * case.world_size


def why(case: Case, given: Given, record: Record) -> str:
    return f"{MAY_HELP}{case.says or 'all ranks call barrier() equally often, and a call on a file needs its name'}"


def meets_in_barrier_only(source: str) -> Any:
    """A rule on an answer's text: it makes no calls of `torch.distributed`."""
    reason = "the ranks meet in barrier() only"
    return find_forbidden(source, {"torch.distributed": reason})


PARTS = {"5": ["old part 0", "old part 1"], "8": ["new part 0", "new part 1"]}
CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    edits_at_once=3,
    example=[
        {"step": 8, "part": f"new part {rank}", "old": 5, "saved": PARTS, "stops": False, "power": False}
        for rank in range(2)
    ],
    why=why,
    reads=[no_stores, meets_in_barrier_only],
    seconds=30.0,
)
