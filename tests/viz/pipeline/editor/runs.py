"""A recorded run that went exactly as a timeline says."""

from dtlearn.pipeline_parallel import ScheduleTimeline
from dtlearn.runtime.record.event import Span
from dtlearn.runtime.record.record import Record, merge


def record_of(timeline: ScheduleTimeline) -> Record:
    spans = [
        Span(rank, str(action), round(start * 1e9), round(end * 1e9))
        for rank, actions in enumerate(timeline.spans)
        for action, start, end in actions
    ]
    return merge(timeline.num_ranks, [], "gloo on CPU", spans)
