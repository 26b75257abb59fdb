"""Seconds of a step on a link: by hand, and beside the simulation, in which every result travels at once."""

import pytest

from dtlearn.pipeline_parallel.checking.simulate import StageTimes, simulate
from dtlearn.pipeline_parallel.runner.virtual_time import played_seconds
from dtlearn.pipeline_parallel.schedules.make import make_schedule

TIMES = StageTimes(1.0, 1.0, 1.0)
NAMES = ["naive", "gpipe", "1f1b", "interleaved", "zb_h1", "zb_h2", "zbv", "v_half", "v_min"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("ranks", "microbatches"), [(1, 2), (2, 4), (4, 8)])
def test_messages_that_take_no_time_change_nothing(name, ranks, microbatches):
    schedule = make_schedule(name, ranks, microbatches)
    assert played_seconds(schedule, TIMES, 0.0) == pytest.approx(simulate(schedule, TIMES).makespan)


def test_two_stages_by_hand():
    """F takes 1, B 2, a message 3.

    GPipe. The second output may not be posted before the first is gone, at 4; rank 1 is in 1F0 until 5 and posts its
    receive then: 1F1 from 8 to 9. Backward 1B1 to 11, and its gradient is there at 14; 1B0 is done at 13, waits to be
    sent until 14, and rank 0 is in 0B1 until 16: it arrives at 19, and 0B0 ends at 21.

    1F1B. The second output travels from 5 to 8, while rank 1 is in 1B0 until 7; that gradient goes the other way, from
    7 to 10, and 0B0 ends at 12. 1B1 ends at 11, but rank 0 posts its receive at 12: there at 15, and 0B1 ends at 17.
    """
    times = StageTimes(1.0, 1.0, 1.0)
    assert played_seconds(make_schedule("gpipe", 2, 2), times, 3.0) == pytest.approx(21.0)
    assert played_seconds(make_schedule("1f1b", 2, 2), times, 3.0) == pytest.approx(17.0)


def test_a_message_arrives_one_latency_after_its_ports_are_free():
    """One micro-batch goes there and back: 1 + 3.5 + 1 + 2 + 3.5 + 2."""
    assert played_seconds(make_schedule("gpipe", 2, 1), TIMES, 3.0, 0.5) == pytest.approx(13.0)
    assert played_seconds(make_schedule("gpipe", 2, 1), TIMES, 0.5, 3.0) == pytest.approx(13.0)


@pytest.mark.parametrize("name", NAMES)
def test_a_slower_link_never_makes_a_step_faster_and_the_free_one_is_a_bound(name):
    schedule = make_schedule(name, 2, 4)
    seconds = [played_seconds(schedule, TIMES, occupied, 0.1) for occupied in (0.0, 0.5, 2.0, 8.0)]
    assert seconds == sorted(seconds) and seconds[-1] > seconds[0]
    assert all(
        played >= simulate(schedule, TIMES, transfer=occupied + 0.1).makespan - 1e-9
        for played, occupied in zip(seconds, (0.0, 0.5, 2.0, 8.0), strict=True)
    )


@pytest.mark.parametrize("wrong", [(-1.0, 0.0), (1.0, -0.1)])
def test_negative_seconds_are_refused(wrong):
    with pytest.raises(ValueError, match="a message takes 0 s or more"):
        played_seconds(make_schedule("gpipe", 2, 2), TIMES, *wrong)
