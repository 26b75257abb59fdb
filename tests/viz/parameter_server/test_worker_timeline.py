import pytest

from dtlearn.parameter_server.virtual_clock.simulate import Stretch
from dtlearn.runtime.record.event import Span
from dtlearn.runtime.record.record import merge
from dtlearn.viz.parameter_server.worker_timeline import (
    WorkerBusy,
    computing_in,
    computing_under_clock,
    worker_timeline,
)
from tests.viz.records import MS, event

BUSY = [WorkerBusy(0, 0, 0, 1), WorkerBusy(0, 1, 4, 5), WorkerBusy(1, 0, 0, 4), WorkerBusy(1, 1, 4, 8)]


def spans(rank, *phases):
    return [Span(rank, phase, start * MS, None if end is None else end * MS) for phase, start, end in phases]


def test_a_recorded_step_is_from_forward_to_the_end_of_backward():
    found = [
        *spans(0, ("step", 3, 4)),
        *spans(1, ("forward", 1, 2), ("backward", 3, 5), ("forward", 9, 10), ("backward", 10, 11)),
        *spans(2, ("forward", 2, 3), ("backward", 3, 7), ("forward", 12, None)),
    ]
    run = merge(3, [[event(0, 0, "send", 0, 1, peer=1)], [], []], spans=found)
    assert computing_in(run, 1) == [
        WorkerBusy(0, 0, 0.0, 0.004),
        WorkerBusy(0, 1, 0.008, 0.010),
        WorkerBusy(1, 0, 0.001, 0.006),
    ]
    with pytest.raises(ValueError, match="no worker of this record"):
        computing_in(run, 3)


def test_of_a_simulated_run_what_is_computed_is_drawn():
    stretches = [Stretch(0, 0, "pull", 0, 1), Stretch(0, 0, "compute", 1, 3), Stretch(0, 0, "push", 3, 4)]
    assert computing_under_clock(stretches) == [WorkerBusy(0, 0, 1, 3)]


def test_bars_numbers_and_what_is_said_of_each_run():
    fig = worker_timeline({"BSP": BUSY, "half": [*BUSY[:1], *BUSY[2:]]}, until=5, slow=1)
    first, second = fig.axes
    numbers = [text.get_text() for text in first.texts]
    assert numbers[:4] == ["0", "1", "0", "1"]
    # Until 5 s: worker 0 waits 3 of 5, worker 1 never; its second step is not done.
    assert numbers[4] == "BSP: 3 steps done, workers wait 30% of the time"
    # Worker 0 has done its last step at 1 s, and waits for nothing afterwards.
    assert second.texts[-1].get_text() == "half: 2 steps done, workers wait 0% of the time"
    assert [label.get_text() for label in first.get_yticklabels()] == ["worker 0", "worker 1 (slow)"]
    assert first.get_xlim() == (0, 5)


def test_a_run_without_steps_is_refused():
    for runs in ({}, {"BSP": []}):
        with pytest.raises(ValueError, match="runs with steps are needed"):
            worker_timeline(runs)
