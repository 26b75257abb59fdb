import pytest

from dtlearn.pipeline_parallel import parse_schedule
from dtlearn.pipeline_parallel.checking.simulate import StageTimes, simulate
from dtlearn.pipeline_parallel.checking.validate import ScheduleError
from dtlearn.viz.pipeline.schedule_grid import draw_schedule

TEXT = """
0F0 0F1 0B0 0B1
1F0 1F1 1B0 1B1
"""


def boxes(ax):
    return {box.get_gid(): (box.get_x(), box.get_x() + box.get_width()) for box in ax.patches if box.get_gid()}


def test_without_times_a_backward_pass_takes_two_forward_passes():
    fig = draw_schedule(parse_schedule(TEXT), "t", "l")
    drawn = boxes(fig.axes[0])
    assert drawn["1F1"] == (2, 3) and drawn["1B0"] == (3, 5) and drawn["0B1"] == (7, 9)
    assert fig.axes[0].get_title(loc="left") == "9 long; bubble: idle / useful = 50.0 %, idle / total = 33.3 %"
    assert "1 is the forward pass of a stage" in fig.axes[0].get_xlabel()


def test_a_timeline_is_drawn_with_its_own_times_beside_a_schedule():
    timeline = simulate(parse_schedule(TEXT), StageTimes(2.0, 1.0, 1.0))
    fig = draw_schedule({"equal": timeline, "plain": parse_schedule(TEXT)})
    assert boxes(fig.axes[0])["0F1"] == (2, 4) and boxes(fig.axes[1])["0F1"] == (1, 2)


def test_stages_of_one_rank_share_its_time():
    fig = draw_schedule(parse_schedule("0F0 1F0 1B0 0B0"))
    drawn = boxes(fig.axes[0])
    assert "1 is the forward pass of 1/p of the model" in fig.axes[0].get_xlabel()
    assert drawn == {"0F0": (0, 0.5), "1F0": (0.5, 1), "1B0": (1, 2), "0B0": (2, 3)}


def test_a_schedule_that_cannot_run_is_refused_with_the_reason():
    with pytest.raises(ScheduleError, match="0B0"):
        draw_schedule(parse_schedule("0B0 0F0\n1F0 1B0"))
