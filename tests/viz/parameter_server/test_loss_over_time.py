import pytest

from dtlearn.parameter_server.virtual_clock.simulate import Version
from dtlearn.viz.parameter_server.loss_over_time import loss_over_time

RUNS = {
    "BSP": [Version(0, 0.0, 2.0), Version(1, 4.0, 1.0), Version(2, 8.0, 0.4)],
    "asynchronous": [Version(0, 0.0, 2.0), Version(1, 1.0, 1.6), Version(2, 2.0, 1.2)],
}


def test_one_line_for_each_run_on_both_clocks():
    left, right = loss_over_time(RUNS, target=0.5).axes
    drawn = [[list(line.get_xdata()) for line in ax.lines if len(line.get_xdata()) == 3] for ax in (left, right)]
    assert drawn == [[[0, 1, 2], [0, 1, 2]], [[0, 4, 8], [0, 1, 2]]]
    assert (left.get_xlabel(), right.get_xlabel()) == ("updates", "seconds")


def test_samples_make_updates_comparable_and_the_target_is_in_the_legend():
    fig = loss_over_time(RUNS, {"BSP": 96, "asynchronous": 24}, target=0.5)
    assert [list(line.get_xdata()) for line in fig.axes[0].lines if len(line.get_xdata()) == 3] == [
        [0, 96, 192],
        [0, 24, 48],
    ]
    assert fig.axes[0].get_xlabel() == "samples in these updates"
    assert [text.get_text() for text in fig.legends[0].get_texts()] == ["BSP: 8 s to 0.5", "asynchronous"]


def test_other_runs_are_refused():
    for arguments in (({},), (RUNS, {"BSP": 1}), (dict.fromkeys("abcdef", RUNS["BSP"]),)):
        with pytest.raises(ValueError, match="1 to 5 runs are needed"):
            loss_over_time(*arguments)
