"""A small pipeline to draw: two stages, two micro-batches, GPipe; forward passes take 1, backward passes 2."""

from dtlearn.runtime.record.event import Span
from dtlearn.runtime.record.record import Record, merge
from dtlearn.viz.pipeline.bars import Bar

MS = 1_000_000
GPIPE = [
    Bar(0, 0, "F", 0, 0, 1),
    Bar(0, 0, "F", 1, 1, 2),
    Bar(0, 0, "B", 0, 5, 7),
    Bar(0, 0, "B", 1, 7, 9),
    Bar(1, 1, "F", 0, 1, 2),
    Bar(1, 1, "F", 1, 2, 3),
    Bar(1, 1, "B", 0, 3, 5),
    Bar(1, 1, "B", 1, 5, 7),
]


def recorded(*lengths: int, label: str = "gloo on CPU") -> Record:
    """A run with a step for each of these lengths of a forward pass in ms, beside other phases."""
    spans, begin = [Span(0, "forward", 0, 3 * MS)], 100
    for length in lengths:
        for bar in GPIPE:
            times = (begin + length * bar.start) * MS, (begin + length * bar.end) * MS
            spans.append(Span(bar.rank, f"{bar.stage}{bar.op}{bar.microbatch}", *times))
        begin += 10 * length
    return merge(2, [], label, spans)
