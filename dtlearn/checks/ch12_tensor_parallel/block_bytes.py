"""ch12.block_bytes: several blocks, numbers of ranks and ways to run them; what wrong numbers come from is told.

`tests/course` holds the counts against those of `dtlearn.tensor_parallel`, whose own tests hold them against records.
"""

from __future__ import annotations

import math
import re
from typing import Any

import torch

from dtlearn.grading import Case, Check, Finding, Given, difference, rules
from dtlearn.runtime.record.record import Record

from ..ch08_memory._counts import Counts, find_mistakes
from ..sent import no_stores
from .ways.refusals import refusal
from .ways.traffic import FLAGS, KEYS, SAYS, count

Job = dict[str, Any]


def inputs(case: Case) -> Given:
    g = case.generator()

    def number(low: int, high: int) -> int:
        return int(torch.randint(low, high, (), generator=g))

    jobs = []
    ways = ((2, ""), (4, "r"), (8, "s"), (3, "sg"), (4, "sgr"), (6, "sr"), (5, ""), (8, "r"))
    for k, (t, flags) in enumerate((*ways, (1, ""), (1, "sgr"), (number(9, 17), "sg"))):
        job: Job = {"b": number(1, 9), "s": t * number(3, 40), "h": t * 4 * number(2, 9), "t": t}
        job |= {"itemsize": (2, 4, 8, 1)[k % 4], "m": 1 if k == 6 else number(2, 7)}
        jobs.append(job | {name: name[0] in flags for name in FLAGS})
    refused = []
    for t, s, flags in ((4, 6, "s"), (3, 16, "sgr"), (8, 12, "sg")):
        job = {"b": 2, "s": s, "h": 24 * t, "t": t, "itemsize": 2, "m": 2}
        refused.append(job | {name: name[0] in flags for name in FLAGS})
    # Without sequence parallelism tokens need not divide.
    jobs.append({"b": 3, "s": 7, "h": 16, "t": 4, "itemsize": 2, "m": 3} | dict.fromkeys(FLAGS, False))
    return [{"jobs": jobs, "refused": refused}] * case.world_size


def on_rank(answer: Any, jobs: Any, refused: Any) -> Any:
    made = []
    for job in jobs:
        try:
            made.append(answer(**job))
        except (RuntimeError, TypeError, ValueError, AssertionError, ArithmeticError) as error:
            if not isinstance(error, NotImplementedError):
                told = ", ".join(f"{name} = {value}" for name, value in job.items())
                error.args = (f"{' '.join(str(error).split()).rstrip('.')} (with {told})",)
            raise
    raised = []
    for job in refused:
        try:
            answer(**job)
            raised.append(["", ""])
        except (RuntimeError, TypeError, ValueError, AssertionError, ArithmeticError) as error:
            raised.append([type(error).__name__, str(error)])
    return {"made": made, "raised": raised}


def told(job: Job) -> str:
    sizes = ", ".join(f"{name} = {job[name]}" for name in ("b", "s", "h", "t", "itemsize", "m"))
    return ", ".join([sizes, *(name for name in FLAGS if job[name])])


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    jobs, refused = given[0]["jobs"], given[0]["refused"]
    for rank, notes in enumerate(got):
        counts: list[Counts] = []
        for job, one in zip(jobs, notes["made"], strict=True):
            found = difference(dict.fromkeys(KEYS, 0), one, 0, math.inf, "the result")
            if found and found.code == "DTL-VALUE":  # the first key's; the others may have no number at all
                differences = (difference(0, one[key], 0, math.inf, f"the result[{key!r}]") for key in KEYS)
                found = next((d for d in differences if d and d.code != "DTL-VALUE"), None)
            if found:
                return Finding(found.code, f"{found.text} (with {told(job)})", rank)
            if bad := next((key for key in KEYS if not _is_whole(one[key])), None):
                what = "bytes" if bad != "calls" else "calls"
                return Finding("DTL-VALUE", f"{bad} is {one[bad]}, no whole number of {what} (with {told(job)})", rank)
            counts.append({key: round(one[key]) for key in KEYS})
        if found := find_mistakes(count, SAYS, jobs, counts):
            k = next(k for k, (job, c) in enumerate(zip(jobs, counts, strict=True)) if c != count(job))
            return Finding(found.code, f"{_by_job(found.text, jobs, k)} (with {told(jobs[k])})", rank)
        for job, (name, text) in zip(refused, notes["raised"], strict=True):
            where = f"{job['t']} ranks do not divide {job['s']} tokens (with {told(job)})"
            if found := refusal({"raised": name, "text": text}, where, job["s"], job["t"], rank):
                return found
    return None


def _is_whole(number: float) -> bool:
    """Whether it is a whole number, but for the last digits of a float."""
    return math.isfinite(number) and abs(number - round(number)) < 1e-3


def _by_job(text: str, jobs: list[Job], told_already: int) -> str:
    """A text of `find_mistakes`, which was given jobs in place of ranks, with jobs."""
    name = lambda found: "" if int(found[1]) == told_already else f" with {told(jobs[int(found[1])])}"  # noqa: E731
    text = re.sub(r" on rank (\d+)", name, text).replace(" on every rank", " everywhere")
    return re.sub(r"(calls should be [\d,]+) bytes", r"\1", text)


CHECK = Check(on_rank, inputs, None, verify=verify, rules=[rules.most_messages("0")], reads=[no_stores])
