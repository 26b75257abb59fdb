import pytest

from dtlearn.viz.mixed_precision.loss_scale import loss_scale


def test_stairs_in_powers_of_two_and_a_cross_on_each_skipped_step():
    fig = loss_scale([4.0, 8.0, 4.0], [1], "t", "l")
    stairs, crosses = fig.axes[0].lines
    assert list(stairs.get_ydata()) == [2, 3, 2, 2] and list(stairs.get_xdata()) == [0, 1, 2, 3]
    assert list(crosses.get_xdata()) == [1.5] and list(crosses.get_ydata()) == [3]
    assert crosses.get_label() == "skipped: 1 of 3 steps"
    assert fig.axes[0].get_xlabel() == "step" and "loss scale" in fig.axes[0].get_ylabel()


def test_without_skipped_steps_there_are_no_crosses():
    assert len(loss_scale([1.0, 1.0], []).axes[0].lines) == 1


@pytest.mark.parametrize(("scales", "skipped"), [([], []), ([1.0, 0.0], []), ([1.0], [1])])
def test_steps_that_do_not_fit_are_refused(scales, skipped):
    with pytest.raises(ValueError, match="scales above 0"):
        loss_scale(scales, skipped)
