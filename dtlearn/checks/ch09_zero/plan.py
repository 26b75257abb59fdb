"""ch09.plan: several models and machines in a run, one of which a byte decides.

What a wrong answer leads to is counted with its mistakes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch

from dtlearn.grading import Case, Check, Finding, Given, difference, rules
from dtlearn.runtime.record.record import Record

from ..ch08_memory._counts import Counts, find_mistakes

_KEYS = ("weights", "gradients", "optimizer", "temporary", "sent")
_GB = 10**9
Job = dict[str, Any]
_SAYS = {
    "no padding": ("DTL-VALUE-NO-PADDING", "the padding is left out: each unit's buffer is a multiple of N"),
    "padded at once": ("DTL-VALUE-PADDED-AT-ONCE", "all units are padded as one buffer: each has a buffer of its own"),
    "no remainder": ("DTL-VALUE-NO-PADDING", "n // N drops what is left over: a shard holds n / N, rounded up"),
    "weights divided": ("DTL-VALUE-STAGE", "the weights are divided in stages 1 or 2 already: only stage 3 does that"),
    "gradients in 1": ("DTL-VALUE-STAGE", "the gradients are divided in stage 1 already: stage 2 does that"),
    "whole gradients in 2": ("DTL-VALUE-STAGE", "the gradients are whole in stage 2: it divides them"),
    "weights whole": ("DTL-VALUE-STAGE", "the weights are whole in stage 3: it divides them"),
    "optimizer in 0": ("DTL-VALUE-STAGE", "stage 0 divides the optimizer's state: it divides nothing"),
    "16 of optimizer": ("DTL-VALUE-BYTES-EACH", "the optimizer has 16 bytes for each parameter: 12, beside 2 and 2"),
    "8 of optimizer": ("DTL-VALUE-BYTES-EACH", "the optimizer has 8 bytes for each parameter: the master is missing"),
    "float32": ("DTL-VALUE-BYTES-EACH", "weights or gradients have 4 bytes here: in mixed precision they have 2"),
    "nothing temporary": ("DTL-VALUE-TEMPORARY", "nothing temporary is counted where whole units are needed"),
    "temporary in 1": ("DTL-VALUE-TEMPORARY", "stages 0 and 1 have whole gradients: nothing is temporary beside them"),
    "no gradient": ("DTL-VALUE-TEMPORARY", "the largest unit's whole gradient is left out"),
    "one weight": ("DTL-VALUE-TEMPORARY", "one unit's whole weights are counted: two are gathered, one is prefetched"),
    "no weights": ("DTL-VALUE-TEMPORARY", "the gathered weights of stage 3 are left out"),
    "largest twice": (
        "DTL-VALUE-NOT-NEIGHBOURS",
        "the largest unit's weights are counted twice: gathered are two that follow one another",
    ),
    "two largest": (
        "DTL-VALUE-NOT-NEIGHBOURS",
        "the weights of the two largest units are counted: gathered are two that follow one another",
    ),
    "first two": (
        "DTL-VALUE-NOT-NEIGHBOURS",
        "the weights of the first two units are counted: another pair of neighbours needs more",
    ),
    "in a circle": (
        "DTL-VALUE-NOT-NEIGHBOURS",
        "the weights of the last unit and the first are counted: no unit follows the last",
    ),
    "with the largest": (
        "DTL-VALUE-NOT-NEIGHBOURS",
        "the largest unit's weights and its larger neighbour's are counted: another pair may need more together",
    ),
    "raw pairs": (
        "DTL-VALUE-NOT-NEIGHBOURS",
        "the pair with most parameters is counted: with padding, another pair needs more",
    ),
    "no unit alone": ("DTL-VALUE-TEMPORARY", "of a model of one unit, its weights are counted otherwise: once"),
    "all gathered": ("DTL-VALUE-TEMPORARY", "the weights of all units are counted as gathered: two are, at a time"),
    "two gradients": ("DTL-VALUE-TEMPORARY", "the whole gradients of two units are counted: one is there at a time"),
    "whole sent": ("DTL-VALUE-TRAFFIC", "all bytes of a buffer are sent: a rank sends (N - 1)/N of them"),
    "shard sent": ("DTL-VALUE-TRAFFIC", "a rank's own part is sent once in a pass: (N - 1) times are needed"),
    "one pass": ("DTL-VALUE-TRAFFIC", "a pass is missing: all-reduce is a reduce-scatter and an all-gather"),
    "three times": ("DTL-VALUE-TRAFFIC", "a pass too many: in stages 0 to 2 gradients go once, weights once"),
    "no second gather": ("DTL-VALUE-TRAFFIC", "stage 3 gathers the weights again in backward: 3 passes, not 2"),
    "no accumulation": ("DTL-VALUE-ACCUMULATION", "the micro-batches are left out"),
    "accumulation in 0": (
        "DTL-VALUE-ACCUMULATION",
        "every pass is counted for each micro-batch: where gradients are whole, they are added up first, and the "
        "weights of stages 1 and 2 are gathered once a step",
    ),
    "gathers in 2": ("DTL-VALUE-ACCUMULATION", "stage 2 gathers the weights once a step, not for each micro-batch"),
    "3 gathers once": ("DTL-VALUE-ACCUMULATION", "stage 3 gathers the weights for each micro-batch"),
    "3 reduces once": ("DTL-VALUE-ACCUMULATION", "stage 3 reduces the gradients of each micro-batch"),
    "elements": ("DTL-VALUE-ELEMENTS", "this is a number of elements, not of bytes: 2 bytes each"),
}


def inputs(case: Case) -> Given:
    g = case.generator()

    def number(low: int, high: int) -> int:
        return int(torch.randint(low, high, (), generator=g))

    def job(units: list[int], n: int, a: int, stage: int | None, exactly: bool = False) -> Job:
        """`stage`: the smallest that fits, or None."""
        one = {"units": units, "num_ranks": n, "accumulation": a}
        totals = [_held(count(one), s) for s in range(4)]
        room = min(totals) - 1 if stage is None else totals[stage]
        gb = -(-(room + _GB) // _GB)
        spare = gb * _GB - room
        if stage == 0 or exactly or stage is None:
            return {**one, "memory_gb": gb, "activation_bytes": spare}
        gap = min(totals[:stage]) - totals[stage]
        return {**one, "memory_gb": gb, "activation_bytes": spare - (gap // number(3, 9) if gap > 0 else 0)}

    def sizes(*millions: int) -> list[int]:
        return [m * 10**6 + 2 * number(1, 4000) + 1 for m in millions]

    return [
        {
            "jobs": [
                job(sizes(260, 40, 190, 200, 90), 64, 1, 3),
                job(sizes(400, 120, 130, 120), 8, 4, 1),
                job(sizes(700, 90, 100, 600), 16, number(2, 6), 2),
                job(sizes(50, 300, 60), 6, 3, 0),
                job(sizes(900, 80, 850, 70), 12, 2, None),
                job(sizes(300, 310, 90), 7, 1, 1, exactly=True),
                job([number(3, 9) * 8 + 5], 8, 2, 0),
                job(sizes(40, 50), 1, 2, 0),
                job([3, 2, 5, 1], 16, 1, 0),
                job([16, 16, 1, 9, 17], 8, 1, 0),  # more parameters in the first two, more with padding in the last
            ]
        }
    ] * case.world_size


def on_rank(answer: Any, jobs: Any) -> Any:
    return [[list(pair) for pair in answer(**job).items()] for job in jobs]


def count(job: Job, mistakes: frozenset[str] = frozenset()) -> Counts:
    """Bytes by stage and key, "sent of stage 2", with these mistakes of `_SAYS`."""
    units, n, a, wrong = job["units"], job["num_ranks"], job["accumulation"], mistakes.__contains__
    if wrong("no padding"):
        shards: list[float] = [unit / n for unit in units]
    elif wrong("no remainder"):
        shards = [unit // n for unit in units]
    else:
        shards = [-(-unit // n) for unit in units]
    shard = -(-sum(units) // n) if wrong("padded at once") else sum(shards)
    whole, largest = shard * n, max(shards) * n
    pairs = [x + y for x, y in pairwise(shards)] or [shards[0]]
    gathered = max(pairs) * n
    if wrong("one weight"):
        gathered = largest
    elif wrong("largest twice"):
        gathered = 2 * largest
    elif wrong("two largest"):
        gathered = sum(sorted(shards)[-2:]) * n
    elif wrong("first two"):
        gathered = pairs[0] * n
    elif wrong("in a circle") and len(units) > 2:
        gathered = max(*pairs, shards[0] + shards[-1]) * n
    elif wrong("with the largest") and len(units) > 1:
        gathered = max(x + y for x, y in pairwise(shards) if max(shards) in (x, y)) * n
    elif wrong("raw pairs") and len(units) > 1:
        raw = [x + y for x, y in pairwise(units)]
        gathered = pairs[raw.index(max(raw))] * n
    elif wrong("no unit alone") and len(units) == 1:
        gathered = 0
    elif wrong("all gathered"):
        gathered = whole
    gathered = 0 if wrong("no weights") or wrong("nothing temporary") else gathered
    gradient = 0 if wrong("no gradient") or wrong("nothing temporary") else largest
    gradient *= 2 if wrong("two gradients") else 1
    each = 1 if wrong("elements") else 4 if wrong("float32") else 2
    of_optimizer = 16 if wrong("16 of optimizer") else 8 if wrong("8 of optimizer") else 12
    of_optimizer = 1 if wrong("elements") else of_optimizer
    sent = whole if wrong("whole sent") else shard if wrong("shard sent") else shard * (n - 1)
    every = 1 if wrong("no accumulation") else a
    passes = [2, 2, every + 1, 3 * every]
    if wrong("accumulation in 0"):
        passes[:3] = [2 * a] * 3
    passes[2] = 2 * a if wrong("gathers in 2") else passes[2]
    passes[3] = 2 + a if wrong("3 gathers once") else 1 + 2 * a if wrong("3 reduces once") else passes[3]
    passes[3] = 2 * every if wrong("no second gather") else passes[3]
    passes = [p - 1 for p in passes] if wrong("one pass") else passes
    passes[:3] = [3] * 3 if wrong("three times") else passes[:3]
    made: dict[str, float] = {}
    for stage in range(4):
        weights = (stage == 3 and not wrong("weights whole")) or (0 < stage < 3 and wrong("weights divided"))
        gradients = stage >= (1 if wrong("gradients in 1") else 3 if wrong("whole gradients in 2") else 2)
        optimizer = stage >= (0 if wrong("optimizer in 0") else 1)
        late = stage >= (1 if wrong("temporary in 1") else 2)
        values = (
            each * (shard if weights else whole),
            each * (shard if gradients else whole),
            of_optimizer * (shard if optimizer else whole),
            each * (gradient * late + gathered * (stage == 3)),
            each * passes[stage] * sent,
        )
        made |= {f"{key} of stage {stage}": round(value, 2) for key, value in zip(_KEYS, values, strict=True)}
    return made  # type: ignore[return-value]


def _held(counts: Counts, stage: int) -> int:
    return sum(counts[f"{key} of stage {stage}"] for key in _KEYS[:4])


Fits = Callable[[list[int], int, int], int | None]


def _smallest(totals: list[int], gb: int, also: int) -> int | None:
    return next((s for s, total in enumerate(totals) if total + also <= gb * _GB), None)


def _strict(totals: list[int], gb: int, also: int) -> int | None:
    return next((s for s, total in enumerate(totals) if total + also < gb * _GB), None)


def _largest(totals: list[int], gb: int, also: int) -> int | None:
    return max((s for s, total in enumerate(totals) if total + also <= gb * _GB), default=None)


def _leanest(totals: list[int], gb: int, also: int) -> int | None:
    fitting = [(total, s) for s, total in enumerate(totals) if total + also <= gb * _GB]
    return min(fitting)[1] if fitting else None


def _or_three(totals: list[int], gb: int, also: int) -> int | None:
    found = _smallest(totals, gb, also)
    return 3 if found is None else found


_FITS: tuple[tuple[str, str, Fits], ...] = (
    (
        "DTL-VALUE-GIB",
        "1 GB is taken for 2**30 bytes: it is 10**9",
        lambda totals, gb, also: _smallest(totals, 1, also - (gb * 2**30 - _GB)),
    ),
    ("DTL-VALUE-ACTIVATIONS", "the activations are left out", lambda totals, gb, also: _smallest(totals, gb, 0)),
    ("DTL-VALUE-TIGHT", "what needs exactly the memory is taken for too large: it fits", _strict),
    (
        "DTL-VALUE-LARGEST-STAGE",
        "the largest stage that fits is returned: the smallest sends and waits least",
        _largest,
    ),
    (
        "DTL-VALUE-LARGEST-STAGE",
        "the stage that needs least memory is returned: asked is the smallest number",
        _leanest,
    ),
    ("DTL-VALUE-FITS-ANYWAY", "stage 3 is returned where no stage fits: then it is None", _or_three),
)


def told(job: Job) -> str:
    units = ", ".join(f"{u:,}" for u in job["units"])
    return f"units of {units} parameters, N = {job['num_ranks']}, A = {job['accumulation']}"


def _with_jobs(text: str, jobs: list[Job], told_already: int) -> str:
    """A text of `find_mistakes`, which was given jobs in place of ranks, with jobs."""

    def name(found: re.Match[str]) -> str:
        job = int(found[1])
        return "" if job == told_already else f" with {told(jobs[job])}"

    return re.sub(r" on rank (\d+)", name, text).replace(" on every rank", " everywhere")


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    jobs = given[0]["jobs"]
    for rank, made in enumerate(got):
        plans = [{key: value for key, value in one} for one in made]
        flat: list[Counts] = []
        for job, one in zip(jobs, plans, strict=True):
            want = {stage: dict.fromkeys(_KEYS, 0) for stage in range(4)}
            shape = {key: value for key, value in one.items() if key != "smallest"}
            if set(one) != {*range(4), "smallest"}:
                text = f"{told(job)}: the keys should be 0, 1, 2, 3 and 'smallest'; they are {list(one)}"
                return Finding("DTL-VALUE-SHAPE", text, rank)
            if (found := difference(want, shape, 0, math.inf, "the plan")) and found.code != "DTL-VALUE":
                return Finding(found.code, f"{told(job)}: {found.text}", rank)
            flat.append({f"{key} of stage {s}": round(one[s][key], 2) for s in range(4) for key in _KEYS})
        if found := find_mistakes(count, _SAYS, jobs, flat):
            k = next(k for k, (job, f) in enumerate(zip(jobs, flat, strict=True)) if f != count(job))
            return Finding(found.code, f"{told(jobs[k])}: {_with_jobs(found.text, jobs, k)}", rank)
        if found := _fitting(jobs, [one["smallest"] for one in plans]):
            return found
    return None


def _fitting(jobs: list[Job], got: list[Any]) -> Finding | None:
    """Which stage fits, all bytes being right."""

    def made(fits: Fits, also_sent: int = 0, also_temporary: int = 1) -> list[int | None]:
        found = []
        for job in jobs:
            counts = count(job)
            totals = [_held(counts, s) + counts[f"sent of stage {s}"] * also_sent for s in range(4)]
            totals = [t - counts[f"temporary of stage {s}"] * (1 - also_temporary) for s, t in enumerate(totals)]
            found.append(fits(totals, job["memory_gb"], job["activation_bytes"]))
        return found

    right = made(_smallest)
    if got == right and not any(isinstance(s, bool) for s in got):
        return None
    k = next(k for k, (want, have) in enumerate(zip(right, got, strict=True)) if have != want or isinstance(have, bool))
    job = jobs[k]
    where = f"{told(job)}, {job['memory_gb']} GB, activations of {job['activation_bytes']:,} bytes"
    text = f"smallest should be {right[k]}; it is {got[k]!r}"
    for code, why, fits in _FITS:
        if made(fits) == got:
            return Finding(code, f"{text} ({where}): {why}", 0)
    if made(_smallest, also_temporary=0) == got:
        return Finding("DTL-VALUE-TEMPORARY", f"{text} ({where}): what is temporary needs memory too", 0)
    if made(_smallest, also_sent=1) == got:
        return Finding("DTL-VALUE-SENT-COUNTED", f"{text} ({where}): what is sent takes no room here, and is added", 0)
    return Finding("DTL-VALUE", f"{text} ({where})", 0)


CHECK = Check(on_rank, inputs, None, verify=verify, rules=[rules.most_messages("0")])
