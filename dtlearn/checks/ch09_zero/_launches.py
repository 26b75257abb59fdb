"""When the answer to ch09.reduce_scatter_hook waited for each bucket, by the record.

The hooks of `on_rank`, which run after the answer's, enter a phase and leave it at once: so the record has the moment.
"""

from __future__ import annotations

from dtlearn.grading import Case, Finding, Given
from dtlearn.runtime.record.record import Record

STEP, READY, DONE = "a step begins", "a gradient is there", "backward is over"


def one_under_way(case: Case, given: Given, record: Record) -> Finding | None:
    """Each reduce-scatter is asynchronous, and waited for just before the next one: not earlier, not later."""
    for rank in range(case.world_size):
        events = record.select(rank=rank).events
        spans = [span for span in record.spans if span.rank == rank]
        begins = [span.start_ns for span in spans if span.phase == STEP]
        ready = [span.start_ns for span in spans if span.phase in (READY, DONE)]
        for number, (begin, end) in enumerate(zip(begins, [*begins[1:], float("inf")], strict=True)):
            calls = [e for e in events if begin <= e.start_ns < end]
            for k, call in enumerate(calls):
                where, line = f"rank {rank}, step {number + 1}", call.line or None
                if not call.asynchronous:
                    text = f"{where}: a reduce-scatter is not asynchronous, and backward stands still: async_op=True"
                    return Finding("DTL-RULE-SCHEDULE", text, rank, line)
                if call.wait_ns is None:  # not seen, as by a future: the values tell
                    continue
                until = calls[k + 1].start_ns if k + 1 < len(calls) else end
                if call.wait_ns > until:
                    text = (
                        f"{where}: bucket {k} is not waited for before the next is launched: one is under way at most"
                    )
                    return Finding("DTL-RULE-SCHEDULE", text, rank, line)
                if any(call.wait_ns < moment < until for moment in ready):
                    same = not any(call.start_ns < moment < call.wait_ns for moment in ready)
                    hook = "the hook that launches it" if same else "a hook that launches nothing"
                    text = f"{where}: bucket {k} is waited for in {hook}, and backward stands still until then: wait "
                    return Finding("DTL-RULE-SCHEDULE", f"{text}just before the next bucket is launched", rank, line)
    return None
