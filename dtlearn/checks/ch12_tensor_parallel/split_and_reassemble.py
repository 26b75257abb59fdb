"""ch12.split_and_reassemble: weights of several shapes, dims and groups; the parts change before they are gathered.

When all weights were cut, each is put together a third time, of the first part, changed in place: what belongs to one
weight must not be that of the last one. All parts have the same number of bytes, which the budget counts. The full
weight lies in memory of an array that lives as long as any tensor refers to it: so its end can be seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from dtlearn.grading import Case, Check, Finding, Given, Mistake, Stress, compare
from dtlearn.runtime.record.record import Record
from dtlearn.runtime.words import listed

from ..sent import no_stores
from . import MAY_HELP
from .ways.cuts import CUTS, JOINS, OF_THE_LAST, OLD, Cut, Join, cut
from .ways.held import CheckOfMemory, holds
from .ways.refusals import refusal

_BYTES = 48  # of each part
_BOTH, _HALVES, _ALL, _UNEVEN = [[0, 1]], [[0, 2], [1, 3]], [[0, 1, 2, 3]], [[0], [1, 2, 3]]
# By world size: groups, the shape of a part, the dim, the dtype, and whether the dims were moved: not contiguous.
_JOBS: dict[int, tuple[tuple[list[list[int]], tuple[int, ...], int, torch.dtype, bool], ...]] = {
    2: (
        (_BOTH, (3, 4), 0, torch.float32, False),
        (_BOTH, (2, 3), 1, torch.float64, False),
        ([[0], [1]], (4, 3), 0, torch.float32, False),
    ),
    4: (
        (_ALL, (2, 3, 2), 1, torch.float32, False),
        (_HALVES, (4, 3), 0, torch.float32, False),
        (_HALVES, (2, 12), -1, torch.bfloat16, False),
        (_UNEVEN, (3, 2, 2), -2, torch.float32, True),
        (_UNEVEN, (6,), 0, torch.int64, False),
        (_ALL, (3, 4), -2, torch.float32, True),
    ),
}
# Groups, a shape and a dim that does not fit: chunk would give fewer pieces than ranks, or unequal ones.
_REFUSED: dict[int, tuple[tuple[list[list[int]], tuple[int, ...], int], ...]] = {
    2: ((_BOTH, (4, 7), 1), (_BOTH, (1, 4), 0)),
    4: ((_ALL, (2, 6), -1), (_HALVES, (5, 4), 0), (_ALL, (10, 4), 0)),
}


def inputs(case: Case) -> Given:
    g, n = case.generator(), case.world_size

    def random(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        if dtype == torch.int64:
            return torch.randint(-(2**62), 2**62, shape, generator=g)  # more digits than float64
        return torch.randn(shape, generator=g, dtype=torch.float64).to(dtype)

    given: Given = [{"jobs": []} for _ in range(n)]
    jobs = [(*job, True) for job in _JOBS[n]]
    jobs += [(groups, shape, dim, torch.float32, False, False) for groups, shape, dim in _REFUSED[n]]
    for groups, shape, dim, dtype, moved, fits in jobs:
        for group in groups:
            t = len(group)
            whole = [size * t if fits and place == dim % len(shape) else size for place, size in enumerate(shape)]
            stored = [whole[-1], *whole[:-1]] if moved else whole
            shared = {"groups": groups, "group": group, "dim": dim, "moved": moved, "fits": fits}
            shared["stored"] = random(stored, dtype)
            for rank in group:
                new = random(shape, dtype) if fits else torch.zeros(0)
                given[rank]["jobs"].append(shared | {"new": new})
    return given


def on_rank(answer: Any, jobs: Any) -> Any:
    import gc
    import weakref

    from dtlearn.runtime.recording.phases import phase

    made: Any = {}  # groups: each is made once, by all ranks
    notes: Any = []
    later: Any = []
    for number, job in enumerate(jobs):
        for group in job["groups"]:
            if str(group) not in made:
                made[str(group)] = dist.new_group(group)
        group = made[str(job["group"])]
        array = job["stored"].view(torch.uint8).numpy().copy()
        alive = weakref.ref(array)
        full = torch.from_numpy(array).view(job["stored"].dtype)
        full = full.movedim(0, -1) if job["moved"] else full
        where = (
            f"(shape {tuple(full.shape)}, dim {job['dim']}, a group of the ranks {job['group']}; this is rank {rank})"  # type: ignore[name-defined] # noqa: F821
        )
        try:
            with phase(f"{number}/cut"):
                returned = answer(full, job["dim"], group)
            if not job["fits"]:
                notes.append({"raised": ""})
                continue
            if not (isinstance(returned, tuple | list) and len(returned) == 2 and callable(returned[1])):
                raise TypeError(f"a tuple of the part and a function is asked; returned was {type(returned).__name__}")
            part, reassemble = returned
            note = {
                "part": part.clone(),
                "view": part.untyped_storage().data_ptr() == full.untyped_storage().data_ptr(),
                "larger": part.untyped_storage().nbytes() > part.numel() * part.element_size(),
                "changed": not torch.equal(full.movedim(-1, 0) if job["moved"] else full, job["stored"]),
            }
            del array, full, returned
            if alive() is not None:
                gc.collect()
            note["held"] = alive() is not None
            note["copied"] = holds(job["stored"], note["part"], part, reassemble, answer)
            new = job["new"].mT.contiguous().mT if job["new"].dim() > 1 else job["new"].clone()
            with phase(f"{number}/first"):
                first = reassemble(part)
            note["first"] = first.clone()
            with phase(f"{number}/second"):
                second = reassemble(new)
            note["second"] = second
            note["again"] = first
            first_new = first.untyped_storage().data_ptr() != part.untyped_storage().data_ptr()
            note["new"] = first_new and second.untyped_storage().data_ptr() != new.untyped_storage().data_ptr()
            notes.append(note)
            later.append((number, reassemble, part, new, note, where))
        except (RuntimeError, TypeError, ValueError, AttributeError, IndexError, AssertionError) as error:
            if isinstance(error, NotImplementedError) or job["fits"]:
                error.args = (f"{' '.join(str(error).split()).rstrip('.')} {where}",)
                raise
            notes.append({"raised": type(error).__name__, "text": str(error)})
    for number, reassemble, part, new, note, where in later:
        if part.shape == new.shape:
            part.detach().copy_(new)
        try:
            with phase(f"{number}/third"):
                note["third"] = reassemble(part)
        except (RuntimeError, TypeError, ValueError, AttributeError, IndexError, AssertionError) as error:
            what = "called again when other weights had been cut"
            error.args = (f"{' '.join(str(error).split()).rstrip('.')} ({what}) {where}",)
            raise
    return notes


def _full(job: dict[str, Any]) -> torch.Tensor:
    stored: torch.Tensor = job["stored"]
    return stored.movedim(0, -1) if job["moved"] else stored


def _by_title(
    case: Case,
    given: Given,
    cut_as: Cut | None = None,
    join: Join | None = None,
    old: str = "",
    last: int | None = None,
) -> Any:
    """By rank: of each job that fits, what a rank has when it is done so.

    Args:
        case, given, cut_as, join: how the weight is cut and joined.
        old: "both": the first values come back in all calls; "third": in the third one.
        last: the third call has the group and the dim of this job.
    """
    made: list[dict[str, Any]] = [{} for _ in given]
    for rank, own in enumerate(given):
        for number, job in enumerate(own["jobs"]):
            if not job["fits"]:
                continue
            full, dim, group = _full(job), job["dim"], job["group"]
            parts = [cut(full, dim, len(group), place) for place in range(len(group))]
            place = group.index(rank)
            join_ = join or (lambda parts, dim, place: torch.cat(parts, dim))
            note = {"part": cut_as(full, dim, group, rank, case.world_size) if cut_as else parts[place]}
            if not cut_as:
                note["whole"] = join_(parts, dim, place)
                news = [given[r]["jobs"][number]["new"] for r in group]
                note["whole of changed parts"] = note["whole"] if old == "both" else join_(news, dim, place)
                note["whole later"] = note["whole"] if old else note["whole of changed parts"]
                if last is not None and -full.dim() <= own["jobs"][last]["dim"] < full.dim():
                    others = [given[r]["jobs"][number]["new"] for r in own["jobs"][last]["group"]]
                    note["whole later"] = torch.cat(others, own["jobs"][last]["dim"])
            made[rank][_title(job)] = note
    return made


def _title(job: dict[str, Any]) -> str:
    return f"shape {tuple(_full(job).shape)}, dim {job['dim']}, {_ranks(job['group'])}"


def _ranks(group: list[int]) -> str:
    return f"rank{'s' * (len(group) > 1)} {listed(group)}"


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    parts: list[dict[str, Any]] = [{} for _ in given]
    wholes: list[dict[str, Any]] = [{} for _ in given]
    for rank, (own, notes) in enumerate(zip(given, got, strict=True)):
        for job, note in zip(own["jobs"], notes, strict=True):
            if job["fits"]:
                parts[rank][_title(job)] = {"part": note["part"]}
                wholes[rank][_title(job)] = {
                    "part": note["part"],
                    "whole": note["first"],
                    "whole of changed parts": note["second"],
                    "whole later": note["third"],
                }
    right = _by_title(case, given)
    cuts = [Mistake(f"DTL-VALUE-{code}", text, _by_title(case, given, cut)) for code, text, cut in CUTS]
    alone = [{title: {"part": one["part"]} for title, one in own.items()} for own in right]
    if found := compare(Check(on_rank, inputs, expected, mistakes=lambda *_: cuts), case, given, alone, parts):
        return found
    if found := _memory(given, got):
        return found
    joins = [Mistake(f"DTL-VALUE-{code}", text, _by_title(case, given, None, join)) for code, text, join in JOINS]
    joins += [Mistake("DTL-VALUE-OLD-VALUES", text, _by_title(case, given, old=old)) for old, text in OLD.items()]
    for last in (sum(job["fits"] for job in given[0]["jobs"]) - 1, -1):
        joins.append(Mistake("DTL-VALUE-LAST-GROUP", OF_THE_LAST, _by_title(case, given, last=last)))
    values = Check(on_rank, inputs, expected, mistakes=lambda *_: joins, stress=Stress(poison=True))
    return compare(values, case, given, right, wholes) or _new(given, got) or _refused(given, got)


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = _by_title(case, given)
    return made


def _memory(given: Given, got: list[Any]) -> Finding | None:
    """Whether what a rank keeps has no memory of the whole weight."""
    for rank, notes in enumerate(got):
        for job, note in zip(given[rank]["jobs"], notes, strict=True):
            if not job["fits"]:
                continue
            at = f"({_title(job)})"
            if note["changed"]:
                return Finding("DTL-MUTATED", f"`full` was changed on rank {rank} {at}: it is only to be read", rank)
            if note["view"] or note["larger"]:
                size = "the whole weight's memory" if note["view"] else "more memory than it needs"
                text = f"the part on rank {rank} is a view: it keeps {size} {at}. Slices and chunks are views, and "
                text += "contiguous() copies only what is not contiguous already: clone() always copies"
                return Finding("DTL-VALUE-VIEW", text, rank)
            if note["held"]:
                text = f"the whole weight is still in memory on rank {rank} after `full` was dropped {at}: reassemble "
                return Finding("DTL-RULE-WHOLE-HELD", f"{text}refers to it. Keep numbers, not the tensor", rank)
    return None


def _new(given: Given, got: list[Any]) -> Finding | None:
    """Whether no copy of the whole is kept, and `reassemble` returns tensors of their own."""
    for rank, notes in enumerate(got):
        for job, note in zip(given[rank]["jobs"], notes, strict=True):
            if job["fits"] and note["copied"]:
                text = f"rank {rank} keeps a copy of the whole weight, or of most of it ({_title(job)}): only the part "
                return Finding("DTL-RULE-WHOLE-HELD", f"{text}may stay", rank)
            if job["fits"] and not torch.equal(note["again"], note["first"]):
                text = f"the second call of reassemble changed what the first one had returned ({_title(job)})"
                return Finding("DTL-VALUE-RESULT-SHARED", f"{text}: each has to return a new tensor", rank)
            if job["fits"] and not note["new"]:
                text = f"reassemble returns the part that it was given, not a new tensor ({_title(job)})"
                return Finding("DTL-VALUE-NOT-NEW", f"{text}: a change of one changes the other", rank)
    return None


def _refused(given: Given, got: list[Any]) -> Finding | None:
    """Whether sizes that do not fit are an error that names both numbers."""
    for rank, notes in enumerate(got):
        for job, note in zip(given[rank]["jobs"], notes, strict=True):
            if job["fits"]:
                continue
            size, t = _full(job).shape[job["dim"]], len(job["group"])
            where = f"{_title(job)}: {t} ranks do not divide {size}"
            if found := refusal(note, where, size, t, rank):
                return found
    return None


def why(case: Case, given: Given, record: Record) -> str:
    """Of calls that do not fit together: calls that all ranks of the job were to join."""
    for event in record:
        if event.group == "world" and not event.is_p2p and event.nbytes:
            return "it is a call of all ranks of the job; pass group=group, as a group may have fewer"
    text = (
        f"{MAY_HELP}the group may have fewer ranks than the job, and dist.get_rank() without it is the number in the "
    )
    return f"{text}job; dim may be negative; a tensor may not be contiguous"


def _recorded(case: Case, given: Given, record: Record) -> Finding | None:
    """Nothing is sent to cut, and what comes from other ranks was sent where it is counted."""
    for event in record:
        if event.phase.endswith("/cut") and event.op != "new_group":
            text = (
                f"line {event.line} of rank {event.rank} calls {event.op} to cut the weight; every rank of the group "
            )
            return Finding("DTL-RULE-CALLS", f"{text}has all of it: nothing is to be sent", event.rank, event.line)
    for rank, own in enumerate(given):
        for number, job in enumerate(own["jobs"]):
            for step in ("first", "second", "third"):
                sent = record.select(rank=rank, phase=f"{number}/{step}").nbytes()
                if job["fits"] and len(job["group"]) > 1 and not sent:
                    text = f"the values are right, but rank {rank} sent nothing through torch.distributed to reassemble"
                    return Finding("DTL-RULE-CALLS", f"{text} ({_title(job)}): parts went where nobody counts", rank)
    return None


def _calls(case: Case) -> int:
    """How often a rank calls `reassemble`; with a group of one rank nothing need be sent."""
    return 3 * len(_JOBS[case.world_size])


CHECK = CheckOfMemory(
    on_rank,
    inputs,
    None,
    verify=verify,
    why=why,
    calls=_calls,
    payload=lambda case, given: _BYTES,
    rules=[_recorded],
    reads=[no_stores],
    stress=Stress(poison=True),
)
