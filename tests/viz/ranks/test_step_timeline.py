from dataclasses import replace

import pytest

from dtlearn.runtime.record.event import Span
from dtlearn.viz.ranks.step_timeline import step_timeline
from tests.viz.records import MS, event, record

NAMES = {1000: "gradients", 4: "loss"}
LENGTHS = [9, 5, 4, 7]  # ms of each step: steps 1 and 2 are the shortest two in a row


def run():
    spans, events = [], []
    for rank in range(2):
        begin, calls = 0.0, []
        for number, length in enumerate(LENGTHS):
            names = (("forward", 0, 1), ("backward", 1, 2), ("step", length - 1, length))
            spans += [Span(rank, name, round((begin + a) * MS), round((begin + b) * MS)) for name, a, b in names]
            calls.append(event(rank, 2 * number, "all_reduce", begin + 2, begin + 2.5))
            calls.append(event(rank, 2 * number + 1, "all_reduce", begin + 2.5, begin + 3, nbytes=4))
            begin += length
        spans.append(
            Span(rank, "forward", round(begin * MS), round((begin + 1) * MS))
        )  # test data: no step of training
        events.append(calls)
    return replace(record(*events), spans=tuple(spans))


def test_the_shortest_consecutive_steps_are_drawn_and_bracketed():
    fig = step_timeline(run(), NAMES)
    ax = fig.axes[0]
    texts = [t.get_text() for t in ax.texts]
    assert [t for t in texts if t.startswith("step")] == ["step 1, seen from rank 0", "step 2, seen from rank 0"]
    brackets = [list(line.get_xdata()) for line in ax.lines]
    assert brackets == [[0, 0, 5, 5], [5, 5, 9, 9]]
    assert ax.get_title(loc="left") == "2 training steps on 2 ranks"


def test_calls_are_named_by_what_they_carry():
    legend = [t.get_text() for t in step_timeline(run(), NAMES).legends[0].get_texts()]
    assert legend[:2] == ["all_reduce: gradients", "all_reduce: loss"]
    assert "all_reduce" in [t.get_text() for t in step_timeline(run(), {4: "loss"}).legends[0].get_texts()]


def test_too_few_steps_are_refused():
    with pytest.raises(ValueError, match="4 training steps; 5 were asked for"):
        step_timeline(run(), NAMES, num_steps=5)
