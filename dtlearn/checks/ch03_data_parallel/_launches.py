"""When the answer to ch03.overlap_hooks launched each bucket, by the record and the marks of `on_rank`."""

from __future__ import annotations

from typing import Any

from dtlearn.grading import Finding
from dtlearn.runtime.record.event import Event, Mark
from dtlearn.runtime.record.record import Record

START_OVER = "what is still missing, and what was launched, must start over in finish()"


def calls_of(record: Record, rank: int, marked: list[list[Mark]], number: int) -> list[Event]:
    """All-reduces of a rank in that step. `marked`: its marks, by step."""
    begun = marked[number][0].came_ns
    ended = marked[number + 1][0].came_ns if number + 1 < len(marked) else float("inf")
    return [e for e in record.select(rank=rank, op="all_reduce") if begun <= e.start_ns < ended]


def timing(
    rank: int, number: int, step: Any, marks: list[Mark], calls: list[Event], buckets: list[list[int]]
) -> Finding | None:
    """Whether each bucket was launched in the hook of the last gradient that it had to wait for."""
    _, *ready, end = marks
    done, arrivals = end.came_ns, [int(mark.label) for mark in ready]
    late = [c for c in calls if c.start_ns >= done]
    when = f"in step {number + 1}" if number else "in the first step"
    if late and len(late) == len(calls):
        text = f"rank {rank} launched nothing while backward ran: its all-reduces came after it, so nothing overlaps"
        return _schedule(text, rank, late[0])
    blocking = next((c for c in calls if not c.asynchronous), None)
    if blocking:
        text = f"line {blocking.line} of rank {rank} waits for each all-reduce in the hook, and backward stands still; "
        return _schedule(f"{text}async_op=True returns at once", rank, blocking)
    waited = next((c for c in calls if c.wait_ns is not None and c.wait_ns < done), None)
    if waited:
        text = f"rank {rank} calls wait() in the hook, and backward stands still until then: wait in finish()"
        return _schedule(text, rank, waited)
    if len(calls) > len(buckets):
        text = f"rank {rank} made {len(calls)} all-reduces for {len(buckets)} buckets {when}; one each: put the "
        text += "gradients of a bucket into one tensor"
        return Finding("DTL-RULE-MESSAGES", text, rank, calls[0].line or None)
    if len(calls) < len(buckets) and step["shared"]:
        name = step["shared"][0]
        text = f"rank {rank} launched {len(calls)} of {len(buckets)} buckets {when}: all hooks share {name}, "
        text += (
            f"and see its last value. A function reads it when it runs: bind it, as in `lambda p, {name}={name}: ...`"
        )
        return Finding("DTL-RULE-LATE-BINDING", text, rank)
    if len(calls) < len(buckets):
        text = f"rank {rank} launched {len(calls)} of {len(buckets)} buckets {when}"
        if number and not calls:
            text += f", after all in the first: {START_OVER}. "
            text += _one_list(step["one list"])
        complete = _complete(arrivals, buckets)
        if (k := next((k for k in range(1, len(buckets)) if complete[k] < complete[k - 1]), None)) and calls:
            text += f": bucket {k}, complete before bucket {k - 1}, had to wait for it and was never launched; after "
            text += "each launch the next bucket may be complete as well"
        return Finding("DTL-RULE-MESSAGES", text, rank)
    return _places(rank, [_during(c, ready) for c in calls], arrivals, calls, buckets)


def _during(call: Event, ready: list[Mark]) -> int:
    """Number of the gradient, in order of arrival, in whose hook the call was made."""
    return next((k for k, mark in enumerate(ready) if call.start_ns < mark.came_ns), len(ready))


def _complete(arrivals: list[int], buckets: list[list[int]]) -> list[int]:
    """Of each bucket, the number of the gradient, in order of arrival, that completes it."""
    return [max(arrivals.index(p) for p in bucket) for bucket in buckets]


def _places(
    rank: int, made: list[int], arrivals: list[int], calls: list[Event], buckets: list[list[int]]
) -> Finding | None:
    """The k-th call is bucket k's: it belongs to the hook in which that bucket and all before it became complete."""
    complete = _complete(arrivals, buckets)
    right = [max(complete[: k + 1]) for k in range(len(buckets))]
    if made == right:
        return None
    if made == sorted(complete):
        order = ", ".join(str(b) for b in sorted(range(len(buckets)), key=lambda b: complete[b]))
        text = f"rank {rank} launched the buckets as they became ready ({order}); other ranks have another order, and "
        text += "the sums mix different buckets: keep to the order of the list"
        return _schedule(text, rank, calls[0])
    k = next(k for k, (a, b) in enumerate(zip(made, right, strict=True)) if a != b)
    there = sum(p in buckets[k] for p in arrivals[: made[k] + 1])
    if made[k] < right[k]:
        text = f"rank {rank} launched bucket {k} when {there} of its {len(buckets[k])} gradients was there; the last "
        return _schedule(f"{text}one completes it: count per bucket", rank, calls[k])
    text = f"rank {rank} could have launched bucket {k} at gradient {right[k] + 1} of {len(arrivals)}, and did so "
    where = f"at gradient {made[k] + 1}" if made[k] < len(arrivals) else "after the last"
    return _schedule(f"{text}{where}: that time is lost", rank, calls[k])


def _schedule(text: str, rank: int, call: Event) -> Finding:
    return Finding("DTL-RULE-SCHEDULE", text, rank, call.line or None)


def _one_list(names: list[str]) -> str:
    """Of counts that finish() sets anew, without effect; `names`: attributes that hold the same list, if any do."""
    if names:
        text = f"The attributes {' and '.join(names)} are one list: `a = b` gives it two names, and counting down "
        return f"{text}changes both; make a copy"
    text = "If finish() does set them anew: is it a copy? `a = b` gives one list two names, and counting down changes "
    return f"{text}both"
