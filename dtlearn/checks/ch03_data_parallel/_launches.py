"""Whether backward stood still for an all-reduce of ch03.overlap_hooks, by the record and the marks of `on_rank`."""

from __future__ import annotations

from typing import Any

from dtlearn.grading import Case, Finding, Given
from dtlearn.grading.check import Verify
from dtlearn.runtime.record.event import Event, Mark
from dtlearn.runtime.record.record import Record

from ..marks import steps_of

AFTER = "nothing is launched while backward runs: the all-reduces come after it, so nothing overlaps"


def while_backward_ran(num_steps: int, num_gradients: int) -> Verify:
    """No call waits before backward has ended, and the calls are those that the ranks have counted."""
    each_once = rf"(?:( [0-9])(?!.*\1)){{{num_gradients}}}"  # in whatever order

    def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
        marked = steps_of(record, f"begin{each_once} done", [num_steps] * case.world_size)
        if isinstance(marked, Finding):
            return marked
        for rank, steps in enumerate(marked if not record.incomplete else ()):
            for number, marks in enumerate(steps):
                calls = _calls_of(record, rank, steps, number)
                if found := _waits(rank, calls, marks[-1].came_ns):
                    return found
                counted = got[rank][f"step {number + 1}"]["buckets launched after each gradient"]
                seen = [sum(call.start_ns < mark.came_ns for call in calls) for mark in marks[1:-1]]
                if counted and len(calls) == counted[-1] and seen != counted[:-1]:
                    text = f"rank {rank} said that it launched {counted[:-1]} buckets, and its calls were {seen}"
                    return Finding("DTL-TAMPERED", text, rank)
        return None

    return verify


def _calls_of(record: Record, rank: int, marked: list[list[Mark]], number: int) -> list[Event]:
    """All-reduces of a rank in that step. `marked`: its marks, by step."""
    begun = marked[number][0].came_ns
    ended = marked[number + 1][0].came_ns if number + 1 < len(marked) else float("inf")
    return [e for e in record.select(rank=rank, op="all_reduce") if begun <= e.start_ns < ended]


def _waits(rank: int, calls: list[Event], done: int) -> Finding | None:
    """What is wrong with the first call that does not overlap with backward, which ended at `done`."""
    for call in calls:
        if call.start_ns >= done:
            text = f"rank {rank} launched a bucket after backward had ended: that one overlaps with nothing"
            text = AFTER if calls[0] is call else text
            return Finding("DTL-RULE-SCHEDULE", text, rank, call.line or None)
        if not call.asynchronous:
            text = f"line {call.line} of rank {rank} waits for each all-reduce in the hook, and backward stands still; "
            return Finding("DTL-RULE-SCHEDULE", f"{text}async_op=True returns at once", rank, call.line or None)
        if call.wait_ns is not None and call.wait_ns < done:
            text = f"rank {rank} calls wait() in the hook, and backward stands still until then: wait in finish()"
            return Finding("DTL-RULE-SCHEDULE", text, rank, call.line or None)
    return None
