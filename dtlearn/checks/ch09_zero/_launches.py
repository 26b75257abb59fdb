"""When the answer to ch09.reduce_scatter_hook launched each bucket, by the record and the marks of `on_rank`."""

from __future__ import annotations

from typing import Any

from dtlearn.grading import Finding
from dtlearn.runtime.record.event import Event, Mark
from dtlearn.runtime.record.record import Record

_NEVER = 10**6  # in the order of arrival: not in backward


def find_wrong_launches(
    record: Record, got: list[Any], marked: list[list[list[Mark]]], buckets: list[list[int]]
) -> Finding | None:
    """The first fault in the schedule of any rank and step. `marked`: by rank and step, its marks."""
    for rank, steps in enumerate(got):
        events = [e for e in record.select(rank=rank) if e.op.startswith("reduce_scatter")]
        for number, step in enumerate(steps):
            marks = marked[rank][number]
            ended = marked[rank][number + 1][0].came_ns if number + 1 < len(steps) else float("inf")
            calls = [e for e in events if marks[0].came_ns <= e.start_ns < ended]
            if number and not calls:
                text = (
                    f"rank {rank}, step {number + 1}: none of the {len(buckets)} buckets was launched, and in the step "
                )
                text += "before all were: finish() has to start over, with what is missing and what was launched"
                return Finding("DTL-RULE-MESSAGES", text, rank)
            if wrong := _of_a_step(calls, marks, buckets):
                code, text = wrong
                if step["shared"] and "launched" in text:
                    name = step["shared"][0]
                    text = (
                        f"all hooks share {name}, and see its last value: a function reads it when it runs. Bind it, "
                    )
                    code, text = "DTL-RULE-LATE-BINDING", f"{text}as in `lambda p, {name}={name}: ...`"
                elif number and "were there" in text:
                    text += "; and in finish() what is missing has to start over"
                where = f"rank {rank}, step {number + 1}"
                return Finding(code, f"{where}: {text}", rank, calls[0].line or None if calls else None)
    return None


def _of_a_step(calls: list[Event], marks: list[Mark], buckets: list[list[int]]) -> tuple[str, str] | None:
    _, *ready, end = marks
    done, arrivals = end.came_ns, [int(mark.label) for mark in ready]
    complete = [max((arrivals.index(p) if p in arrivals else _NEVER) for p in bucket) for bucket in buckets]
    right = [max(complete[: k + 1]) for k in range(len(buckets))]
    blocking = next((c for c in calls if not c.asynchronous), None)
    if calls and blocking:
        return "DTL-RULE-SCHEDULE", "a reduce-scatter is not asynchronous, and backward stands still: async_op=True"
    if len(calls) > len(buckets):
        return "DTL-RULE-MESSAGES", f"{len(calls)} reduce-scatters for {len(buckets)} buckets: one each"
    if calls and all(c.start_ns >= done for c in calls) and min(right) < _NEVER:
        return "DTL-RULE-SCHEDULE", "nothing was launched while backward ran, though buckets were complete in it"
    if len(calls) < len(buckets):
        text = f"{len(calls)} of {len(buckets)} buckets were launched"
        if max(right) == _NEVER:
            text += ": a parameter got no gradient, and what backward does not complete is launched in finish()"
        return "DTL-RULE-MESSAGES", text
    made = [_during(c.start_ns, ready) for c in calls]
    if made != right:
        return _places(made, right, complete, arrivals, buckets)
    for k, call in enumerate(calls):
        until = made[k + 1] if k + 1 < len(calls) else _NEVER
        if call.wait_ns is None:  # not seen, as by a future: the values tell
            continue
        if k + 1 < len(calls) and call.wait_ns > calls[k + 1].start_ns:
            text = f"bucket {k} is not waited for before the next is launched: one is under way at most"
            return "DTL-RULE-SCHEDULE", text
        if (waited := _during(call.wait_ns, ready)) < until:
            where = "the hook that launches it" if waited == made[k] else "a hook that launches nothing"
            text = f"bucket {k} is waited for in {where}, and backward stands still until then: wait "
            return "DTL-RULE-SCHEDULE", f"{text}just before the next bucket is launched"
    return None


def _during(time: int, ready: list[Mark]) -> int:
    """Number of the gradient, in order of arrival, in whose hook that was; `_NEVER`: after backward."""
    return next((k for k, mark in enumerate(ready) if time < mark.came_ns), _NEVER)


def _places(
    made: list[int], right: list[int], complete: list[int], arrivals: list[int], buckets: list[list[int]]
) -> tuple[str, str]:
    """The k-th call is bucket k's: it belongs to the hook in which that bucket and all before it became complete."""
    if made == sorted(complete):
        order = ", ".join(str(b) for b in sorted(range(len(buckets)), key=lambda b: complete[b]))
        text = (
            f"the buckets were launched as they became ready ({order}); other ranks have another order, and the sums "
        )
        return "DTL-RULE-SCHEDULE", f"{text}mix different buckets: keep to the order of the list"
    k = next(k for k, (a, b) in enumerate(zip(made, right, strict=True)) if a != b)
    if made[k] < right[k]:
        there = sum(p in buckets[k] for p in arrivals[: made[k] + 1])
        text = f"bucket {k} was launched when {there} of its {len(buckets[k])} gradients were there: count per bucket"
        return "DTL-RULE-SCHEDULE", text
    where = f"at gradient {made[k] + 1}" if made[k] < _NEVER else "after the last, in finish()"
    text = f"bucket {k} could have been launched at gradient {right[k] + 1} of {len(arrivals)}, and was {where}: that "
    return "DTL-RULE-SCHEDULE", f"{text}time is lost"
