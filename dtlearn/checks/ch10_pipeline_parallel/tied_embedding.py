"""ch10.tied_embedding: copies on one rank, on some and on all, two steps each; no two gradients are alike.

Weights have several shapes and types, all of the same number of bytes, which the budget counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from dtlearn.grading import Case, Check, Finding, Given, Mistake, Stress, compare
from dtlearn.runtime.record.record import Record

from ..rounded import rounded_in_messages
from ..sent import no_stores
from . import MAY_HELP
from ._wrong_sums import WAYS, Sums, right

_WEIGHTS = (((4, 3), torch.float32), ((2, 3), torch.float64), ((6, 2), torch.float32))  # of the jobs, in turn
_BYTES = 48  # of each
_STEPS = 2
# By world size: a title, and for each group of ranks with a copy how many copies each has. x: one of them is not used,
# in the second step the one at the other end.
_JOBS: dict[int, tuple[tuple[str, tuple[dict[int, str], ...]], ...]] = {
    1: (
        ("two stages on one rank", ({0: ".."},)),
        ("three stages on one rank, one not used", ({0: "x.."},)),
        ("one stage uses it", ({0: "."},)),
    ),
    2: (
        ("first and last stage", ({0: ".", 1: "."},)),
        ("both stages on rank 1", ({1: ".."},)),
        ("three stages on two ranks", ({0: ".", 1: ".."},)),
        ("two stages on each rank", ({0: ".x", 1: ".."},)),
        ("the copy of rank 0 is not used", ({0: "x", 1: "."},)),
    ),
    4: (
        ("first and last stage", ({0: ".", 3: "."},)),
        ("three stages on three ranks", ({0: ".", 1: ".", 3: "."},)),
        ("two replicas of the pipeline", ({0: ".", 2: ".x"}, {1: "..", 3: "."})),
        ("both stages on rank 2", ({2: ".."},)),
        ("the copies of rank 3 are not used", ({1: "..", 2: ".", 3: "xx"},)),
    ),
}


def inputs(case: Case) -> Given:
    g, n = case.generator(), case.world_size
    given: Given = [{"jobs": []} for _ in range(n)]
    for number, (title, groups) in enumerate(_JOBS[n]):
        members = [sorted(group) for group in groups]
        kinds = {rank: kind for group in groups for rank, kind in group.items()}
        shape, dtype = _WEIGHTS[number % len(_WEIGHTS)]
        weight = torch.randn(shape, dtype=dtype, generator=g)
        for rank in range(n):
            own = kinds.get(rank, "")
            steps = [
                [None if one == "x" else torch.randn(shape, dtype=dtype, generator=g) for one in used]
                for used in (own, own[::-1])
            ]
            given[rank]["jobs"].append({"title": title, "members": members, "weight": weight, "steps": steps})
    return given


def on_rank(answer: Any, jobs: Any) -> Any:
    from dtlearn.runtime.recording.phases import phase

    notes: Any = []
    everyone: Any = []  # the copies of all jobs so far
    for number, job in enumerate(jobs):
        group = None
        for members in job["members"]:
            made = dist.new_group(members) if len(members) > 1 else None
            group = made if rank in members else group  # type: ignore[name-defined] # noqa: F821
        copies = [torch.nn.Parameter(job["weight"].clone()) for _ in job["steps"][0]]
        everyone += copies
        after: Any = []
        aliased = False
        for k, gradients in enumerate(job["steps"]):
            for copy, gradient in zip(copies, gradients, strict=True):
                copy.grad = None if gradient is None else gradient.clone()
            with phase(f"{number}/{k}"):
                answer(list(copies), group)
            after.append([None if copy.grad is None else copy.grad.clone() for copy in copies])
            places = [copy.grad.data_ptr() for copy in everyone if copy.grad is not None]
            aliased = aliased or len(set(places)) < len(places)
        changed = any(not torch.equal(copy, job["weight"]) for copy in copies)
        notes.append({"after": after, "aliased": aliased, "changed": changed})
        dist.barrier()  # a call that a rank leaves out is told with the job that it belongs to: see `why`
    return notes


def _by_title(given: Given, way: Callable[[Sums], Sums]) -> list[dict[str, Any]]:
    """By rank: of each job, the gradients of the copies after each step."""
    made: list[dict[str, Any]] = [{} for _ in given]
    for number, job in enumerate(given[0]["jobs"]):
        for own in made:
            own[job["title"]] = {f"step {k}": [] for k in range(_STEPS)}
        for members in job["members"]:
            for k in range(_STEPS):
                sums = way([given[rank]["jobs"][number]["steps"][k] for rank in members])
                for rank, gradients in zip(members, sums, strict=True):
                    made[rank][job["title"]][f"step {k}"] = gradients
    return made


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    return _by_title(given, right)


def mistakes(case: Case, given: Given) -> list[Mistake]:
    return [Mistake(f"DTL-VALUE-{code}", text, _by_title(given, way)) for code, text, way in WAYS]


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    named: list[dict[str, Any]] = [{} for _ in given]
    for rank, (i, notes) in enumerate(zip(given, got, strict=True)):
        for job, note in zip(i["jobs"], notes, strict=True):
            if note["changed"]:
                text = f"{job['title']}: on rank {rank} the parameter itself has changed; only its .grad may"
                return Finding("DTL-VALUE-PARAMETERS", text, rank)
            named[rank][job["title"]] = {f"step {k}": gradients for k, gradients in enumerate(note["after"])}
    sums = expected(case, given)
    if found := compare(_VALUES, case, given, sums, named):
        return rounded_in_messages(found, sums, named, record)
    for number, job in enumerate(given[0]["jobs"]):
        for members in job["members"]:
            for k in range(_STEPS):
                copies = [(rank, g) for rank in members for g in got[rank][number]["after"][k]]
                if other := next((rank for rank, g in copies if not torch.equal(g, copies[0][1])), None):
                    text = (
                        f"{job['title']}: the sums on ranks {members[0]} and {other} are not the same to the last bit: "
                    )
                    text += "added up in another order on each rank, they differ by a rounding, and the copies part"
                    return Finding("DTL-VALUE-COPIES-PART", text, other)
        for rank in range(case.world_size):
            if got[rank][number]["aliased"]:
                text = f"{job['title']}: two copies on rank {rank} have the same tensor as their .grad: what is added "
                return Finding("DTL-VALUE-SHARED-GRADIENT", f"{text}to one is added to both (.clone())", rank)
    return None


def why(case: Case, given: Given, record: Record) -> str:
    """Of a run that raised, or whose calls do not fit together: in which job, and what is special in it."""
    for number, job in enumerate(given[0]["jobs"]):
        for k in range(_STEPS):
            calls = Counter(e.rank for e in record if e.nbytes and e.phase == f"{number}/{k}")
            if text := _uneven(job["members"], calls, [i["jobs"][number]["steps"][k] for i in given]):
                return f"in the run '{job['title']}' {text}"
    text = (
        f"{MAY_HELP}a rank may have no copy and then group is None, which dist.all_reduce takes for all ranks; a rank "
    )
    return f"{text}may have several copies, or a copy whose .grad is None; a gradient has the type of its weight"


def _uneven(groups: Sequence[list[int]], calls: Counter[int], gradients: Sums) -> str:
    """Why the ranks of a group made different numbers of calls in one step; "" if they did not."""
    for rank in calls:
        if not any(rank in group for group in groups if len(group) > 1):
            return f"group is None on rank {rank}, and dist.all_reduce takes that for all ranks: nothing is to be sent"
    for group in groups:
        few, many = min(group, key=calls.__getitem__), max(group, key=calls.__getitem__)
        if calls[few] < calls[many]:
            text = f"rank {few} makes {calls[few] or 'no'} call{'s' * (calls[few] > 1)} in one step, rank {many} "
            text += f"makes {calls[many]}: "
            if all(g is None for g in gradients[few]):
                return (
                    f"{text}the copies of rank {few} have no gradient, which counts as zero, and rank {few} takes part"
                )
            if len(gradients[few]) < len(gradients[many]):
                return f"{text}rank {many} has more copies, and adds them up by itself before the one call of the step"
            return f"{text}all ranks of a group have to make the same calls"
    return ""


def _recorded(case: Case, given: Given, record: Record) -> Finding | None:
    """What comes from other ranks was sent where it is counted."""
    for rank in range(case.world_size):
        jobs = given[rank]["jobs"]
        needed = _STEPS * sum(any(len(group) > 1 and rank in group for group in job["members"]) for job in jobs)
        if (made := sum(event.nbytes > 0 for event in record.select(rank=rank))) < needed:
            text = (
                f"the values are right, but rank {rank} made {made} calls of torch.distributed with data, in {needed} "
            )
            return Finding("DTL-RULE-CALLS", f"{text}steps that need one: the rest went where nobody counts it", rank)
    return None


def _calls(case: Case) -> int:
    """Steps in which some rank has to communicate."""
    return max(1, sum(any(len(group) > 1 for group in groups) for _, groups in _JOBS[case.world_size]) * _STEPS)


_VALUES = Check(on_rank, inputs, expected, mistakes=mistakes, stress=Stress(poison=True))
CHECK = Check(
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
