"""ch09.reshard: several numbers of ranks, before and after; which elements are read, and what is made of them.

The files are made in `on_rank`; each reading of them is noted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch

from dtlearn.grading import Case, Check, Finding, Given, Stress, difference, rules
from dtlearn.runtime.record.record import Record

from ..sent import no_stores
from . import MAY_HELP

_KEYS = ("values", "exp_avg", "exp_avg_sq")
Job = dict[str, Any]
# What a job's shards are, by unit and key, made in a wrong way.
Way = Callable[[Job], dict[str, dict[str, Any]]]


def inputs(case: Case) -> Given:
    g = case.generator()

    def number(low: int, high: int) -> int:
        return int(torch.randint(low, high, (), generator=g))

    jobs = []
    for ranks, num_ranks, rank in (
        *((4, 2, rank) for rank in range(2)),
        *((4, 3, rank) for rank in range(3)),
        *((2, 4, rank) for rank in range(4)),
        (7, 1, 0),
        (9, 2, 1),
        (1, 3, 1),
        (3, 3, 2),
        (6, 5, 4),
        (3, 8, 6),
    ):
        sizes = [4 * number(3, 6) + 2, 12 * number(1, 3), 4 * number(2, 5) + 1, 3, 1]
        units = {}
        for name, size in zip(("embedding", "block 0", "block 1", "norm", "scale"), sizes, strict=True):
            k = -(-size // ranks)
            whole = {key: torch.randn(k * ranks, generator=g) for key in _KEYS}
            whole["exp_avg_sq"].square_()
            steps = number(3, 90)
            units[name] = {"size": size, "whole": whole, "steps": steps}
        jobs.append({"ranks": ranks, "num_ranks": num_ranks, "rank": rank, "units": units})
    first, *rest = jobs
    return [{"jobs": [first, *(rest[k] for k in torch.randperm(len(rest), generator=g).tolist())]}] * case.world_size


def on_rank(answer: Any, jobs: Any) -> Any:
    class Saved:
        """Files of all ranks; it notes what is read."""

        def __init__(self, job: Any) -> None:
            self.num_ranks = job["ranks"]
            self.units = {name: unit["size"] for name, unit in job["units"].items()}
            reads: list[Any] = []

            def read(r: int, unit: str, key: str, start: int, stop: int) -> Any:
                whole = job["units"][unit]["whole"][key]
                k = len(whole) // job["ranks"]
                if not 0 <= r < job["ranks"]:
                    raise ValueError(f"there is no file of rank {r}: {job['ranks']} ranks saved")
                if not 0 <= start <= stop <= k:
                    raise ValueError(f"elements {start} to {stop} of {unit!r}: a shard of this file has {k}")
                reads.append([r, unit, key, start, stop])
                return whole[r * k + start : r * k + stop].clone()

            def step(r: int, unit: str) -> int:
                if not 0 <= r < job["ranks"]:
                    raise ValueError(f"there is no file of rank {r}: {job['ranks']} ranks saved")
                size = job["units"][unit]["size"]
                return job["units"][unit]["steps"] if r * -(-size // job["ranks"]) < size else 0

            self.read, self.step, self.noted = read, step, lambda: reads

    notes = []
    for job in jobs:
        saved = Saved(job)
        noted = saved.noted
        del saved.noted
        notes.append({"made": answer(saved, job["num_ranks"], job["rank"]), "reads": noted()})
    return notes


def _cut(job: Job, size: int) -> tuple[int, int, int]:
    """The first element of the rank's shard, the end, and the length with padding."""
    k = -(-size // job["num_ranks"])
    return min(job["rank"] * k, size), min((job["rank"] + 1) * k, size), k


def right(job: Job) -> dict[str, dict[str, Any]]:
    """What is asked."""
    made: dict[str, dict[str, Any]] = {}
    for name, unit in job["units"].items():
        first, end, k = _cut(job, unit["size"])
        made[name] = {"step": unit["steps"]}
        for key in _KEYS:
            made[name][key] = torch.zeros(k)
            made[name][key][: end - first] = unit["whole"][key][first:end]
    return made


def _of_whole(shard: Callable[[Job, torch.Tensor, int], torch.Tensor]) -> Way:
    """A way that takes other elements of the padded vectors."""

    def way(job: Job) -> dict[str, dict[str, Any]]:
        return {
            name: {"step": unit["steps"]} | {key: shard(job, unit["whole"][key], unit["size"]) for key in _KEYS}
            for name, unit in job["units"].items()
        }

    return way


def _with_padding(job: Job, whole: torch.Tensor, size: int) -> torch.Tensor:
    k = _cut(job, size)[2]
    part = whole[job["rank"] * k :][:k]
    return torch.cat([part, torch.zeros(k - len(part))])


def _of_padded_length(job: Job, whole: torch.Tensor, size: int) -> torch.Tensor:
    k = -(-len(whole) // job["num_ranks"])
    part = whole[:size][job["rank"] * k :][:k]
    return torch.cat([part, torch.zeros(k - len(part))])


def _not_padded(job: Job, whole: torch.Tensor, size: int) -> torch.Tensor:
    first, end, _ = _cut(job, size)
    return whole[first:end]


def _own_file(job: Job, whole: torch.Tensor, size: int) -> torch.Tensor:
    k, old = _cut(job, size)[2], len(whole) // job["ranks"]
    part = whole[min(job["rank"], job["ranks"] - 1) * old :][: min(old, k)]
    return torch.cat([part, torch.zeros(k - len(part))])


def _changed(change: Callable[[Job, dict[str, Any]], dict[str, Any]]) -> Way:
    """A way that is right but for this."""
    return lambda job: {name: one | change(job, one) for name, one in right(job).items()}


def _steps(of: Callable[[Job, str, int], int]) -> Way:
    """A way whose steps are other ones; of(job, unit, shard's length in the files)."""

    def way(job: Job) -> dict[str, dict[str, Any]]:
        made = right(job)
        for name, unit in job["units"].items():
            made[name]["step"] = of(job, name, -(-unit["size"] // job["ranks"]))
        return made

    return way


def _step(job: Job, name: str, r: int, k: int) -> int:
    unit = job["units"][name]
    return unit["steps"] if r * k < unit["size"] else 0


def _no_own(job: Job) -> dict[str, dict[str, Any]]:
    made = right(job)
    for name, unit in job["units"].items():
        first, end, _ = _cut(job, unit["size"])
        made[name]["step"] *= first < end
    return made


_WAYS: tuple[tuple[str, str, Way], ...] = (
    ("SHARD-PADDING", "the padding of the files is taken over: padding is zeros", _of_whole(_with_padding)),
    (
        "SHARD-PADDING",
        "there is no padding: each shard of a unit has the same length on all ranks",
        _of_whole(_not_padded),
    ),
    (
        "OLD-PADDING",
        "the new shards are cut from the length with the old padding: a shard holds size / N, rounded up",
        _of_whole(_of_padded_length),
    ),
    ("OWN-FILE", "a rank takes the file of the same number: its elements lie in others, too", _of_whole(_own_file)),
    (
        "STATE",
        "the moments are zeros: they are saved, and cut like the values",
        _changed(lambda job, one: {key: torch.zeros_like(one[key]) for key in _KEYS[1:]}),
    ),
    (
        "SWAPPED",
        "exp_avg and exp_avg_sq are in each other's place",
        _changed(lambda job, one: {"exp_avg": one["exp_avg_sq"], "exp_avg_sq": one["exp_avg"]}),
    ),
    (
        "SAME-KEY",
        "the moments are the values: each key is read by its name",
        _changed(lambda job, one: {key: one["values"] for key in _KEYS[1:]}),
    ),
    ("STEPS", "the number of steps is 0: Adam then corrects its moments as if they were new", _steps(lambda *_: 0)),
    (
        "STEPS",
        "the number of steps is that of the file with this rank's number, or of the last: with padding only it is 0",
        _steps(lambda job, name, k: _step(job, name, min(job["rank"], job["ranks"] - 1), k)),
    ),
    (
        "STEPS",
        "the number of steps is that of the last file: with padding only it is 0",
        _steps(lambda job, name, k: _step(job, name, job["ranks"] - 1, k)),
    ),
    (
        "STEPS",
        "the numbers of steps of all files are added up: each says it of the same steps",
        _steps(lambda job, name, k: sum(_step(job, name, r, k) for r in range(job["ranks"]))),
    ),
    (
        "STEPS",
        "a rank whose own shard is padding only has no number of steps: it is the same for every rank",
        _no_own,
    ),
    (
        "FIRST-UNIT",
        "the number of steps of the first unit is taken for all",
        _steps(lambda job, name, k: next(iter(job["units"].values()))["steps"]),
    ),
)


def told(job: Job) -> str:
    return f"saved by {job['ranks']} ranks, wanted by rank {job['rank']} of {job['num_ranks']}"


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    jobs = given[0]["jobs"]
    for rank, notes in enumerate(got):
        made = [note["made"] for note in notes]
        want = [right(job) for job in jobs]
        wrong = [k for k in range(len(jobs)) if difference(want[k], made[k], 0, 0)]
        if not wrong:
            for job, note in zip(jobs, notes, strict=True):
                if found := _reads(job, note["reads"]):
                    return Finding("DTL-RULE-READS", f"{told(job)}: {found}", rank)
            continue
        k = wrong[0]
        # A way that explains all jobs goes before one that explains those that are wrong.
        for code, text, way, which in [(*w, range(len(jobs))) for w in _WAYS] + [(*w, wrong) for w in _WAYS]:
            if all(not difference(way(jobs[i]), made[i], 0, 0) for i in which):
                return Finding(f"DTL-VALUE-{code}", f"{told(jobs[k])}: {text}", rank)
        found_one = difference(want[k], made[k], 0, 0)
        assert found_one is not None
        return Finding(found_one.code, f"{told(jobs[k])}: {found_one.text}", rank)
    return None


def _reads(job: Job, reads: list[list[Any]]) -> str:
    """What was read that need not be, or was not read; "" if each element was read once."""
    for name, unit in job["units"].items():
        size, k = unit["size"], -(-unit["size"] // job["ranks"])
        first, end, _ = _cut(job, size)
        for key in _KEYS:
            of_key = [one for one in reads if one[1:3] == [name, key]]
            seen = Counter(r * k + i for r, _, _, start, stop in of_key for i in range(start, stop))
            if other := [i for i in seen if not first <= i < end]:
                what = "padding" if max(other) >= size else f"element {other[0]}, which belongs to another rank"
                number = sum(seen[i] for i in other)
                text = f"{key!r} of {name!r}: {number} element{'s' * (number > 1)} too many are read, such as {what}"
                return f"{text}; this rank has elements {first} to {end} of {size}"
            if twice := [i for i, times in seen.items() if times > 1]:
                return f"{key!r} of {name!r}: element {twice[0]} is read {seen[twice[0]]} times"
            if len(seen) < end - first:
                return f"{key!r} of {name!r}: the values are right, and were not read with saved.read()"
    return ""


def why(case: Case, given: Given, record: Record) -> str:
    """Of a run that raised: what is special in it."""
    return f"{MAY_HELP}N may be larger or smaller than S, and a rank may have nothing but padding"


CHECK = Check(
    on_rank,
    inputs,
    None,
    verify=verify,
    why=why,
    rules=[rules.most_messages("0")],
    reads=[no_stores],
    stress=Stress(poison=True),  # padding of torch.empty
)
