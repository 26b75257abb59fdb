"""The formula that goes around lets layers start before their gradients are there; the right one is the simulator's."""

import pytest

from dtlearn.communication_scheduling.policy import SchedulingPolicy
from dtlearn.communication_scheduling.recurrence import arrivals, starts, starts_as_written, too_early
from dtlearn.communication_scheduling.simulate import FORWARD, LayerTimes, simulate_step

COMPUTE, COMMUNICATION = (1.0, 1.0, 1.0, 1.0), (2.0, 3.0, 1.0, 1.0)


def test_by_hand():
    assert starts_as_written(COMPUTE, COMMUNICATION) == [0, 1, 2, 4]
    assert arrivals(COMMUNICATION) == [2, 5, 6, 7]
    assert starts(COMPUTE, COMMUNICATION) == [2, 5, 6, 7]
    assert starts((4.0, 1.0, 1.0, 1.0), COMMUNICATION) == [2, 6, 7, 8]


def test_it_starts_layers_too_early():
    assert too_early(starts_as_written(COMPUTE, COMMUNICATION), COMMUNICATION) == [0, 1, 2, 3]
    assert too_early(starts(COMPUTE, COMMUNICATION), COMMUNICATION) == []


@pytest.mark.parametrize("compute", [COMPUTE, (4.0, 0.5, 0.5, 2.0)])
def test_the_right_one_is_the_simulator_after_backward(compute):
    times = LayerTimes(compute, (0.0,) * 4, tuple(map(int, COMMUNICATION)))
    step = simulate_step(times, SchedulingPolicy(credit_bytes=1), float)
    assert [s.start for s in step.computed if s.lane == FORWARD] == starts(compute, COMMUNICATION)


def test_lists_have_to_go_together():
    for formula in (starts, starts_as_written):
        with pytest.raises(ValueError, match="got 1 of computation and 2 of communication"):
            formula([1.0], [1.0, 2.0])
