import pytest

from dtlearn.viz.data_parallel.large_batch import learning_rates, steps_over_batch

MEASURED = {64: 30, 1: 1000, 8: 130}


def lines(fig):
    return {line.get_label(): line for line in fig.axes[0].lines}


def test_points_prediction_and_perfect_scaling_are_the_data():
    fig = steps_over_batch(MEASURED, "t", "simulated", lambda b: 15 + 985 / b, critical_batch=65.6)
    drawn = lines(fig)
    assert list(drawn["measured"].get_xdata()) == [1, 8, 64]
    assert list(drawn["measured"].get_ydata()) == [1000, 130, 30]
    perfect, predicted = drawn["perfect scaling"], drawn["predicted"]
    assert list(perfect.get_xdata()[[0, -1]]) == pytest.approx([1, 64])
    assert list(perfect.get_ydata()[[0, -1]]) == pytest.approx([1000, 1000 / 64])
    assert list(predicted.get_ydata()[[0, -1]]) == pytest.approx([1000, 15 + 985 / 64])
    assert (fig.axes[0].get_xscale(), fig.axes[0].get_yscale()) == ("log", "log")
    assert "critical batch size: 66" in [t.get_text() for t in fig.axes[0].texts]
    assert [t.get_text() for t in fig.axes[0].get_xticklabels()] == ["1", "8", "64"]
    assert len(fig.axes[0].collections[0].get_paths()) == 1, "the lost steps are shaded"


def test_without_a_prediction_the_points_bound_the_lost_steps():
    fig = steps_over_batch(MEASURED, "t", "")
    assert set(lines(fig)) == {"perfect scaling", "measured"}
    vertices = fig.axes[0].collections[0].get_paths()[0].vertices
    assert vertices[:, 1].max() <= 1000.001 and [64, 30] in [[round(x), round(y)] for x, y in vertices]


def test_perfect_points_leave_nothing_to_shade():
    fig = steps_over_batch({1: 100, 10: 10}, "t", "", lambda b: 100 / b - 1e-9)
    assert sum(len(path.vertices) for path in fig.axes[0].collections[0].get_paths()) == 0


def test_a_prediction_says_where_it_comes_from():
    assert "fitted" in lines(steps_over_batch(MEASURED, "t", "", lambda b: 1000 / b, prediction="fitted"))


@pytest.mark.parametrize("measured", [{}, {8: 3}, {8: 3, 0: 1}, {8: 3, 16: 0}])
def test_steps_need_two_batches_above_zero(measured):
    with pytest.raises(ValueError, match="two batch sizes"):
        steps_over_batch(measured, "t", "")


def test_schedules_are_drawn_step_by_step():
    fig = learning_rates({"cosine": [0.1, 0.2, 0.1], "flat": [0.1] * 5}, "t", "l", warmup_steps=1)
    drawn = lines(fig)
    assert list(drawn["cosine"].get_ydata()) == [0.1, 0.2, 0.1] and list(drawn["cosine"].get_xdata()) == [0, 1, 2]
    assert fig.axes[0].get_xlim() == (0, 4) and fig.axes[0].get_ylim()[1] > 0.2
    assert "warm-up" in [t.get_text() for t in fig.axes[0].texts]
    assert drawn["cosine"].get_linestyle() != drawn["flat"].get_linestyle()
    assert not learning_rates({"a": [1.0]}, "t").axes[0].texts


@pytest.mark.parametrize("schedules", [{}, {"a": []}, {str(i): [1.0] for i in range(5)}])
def test_schedules_that_cannot_be_told_apart_are_refused(schedules):
    with pytest.raises(ValueError, match="1 to 4 schedules"):
        learning_rates(schedules, "t")


def test_the_spread_of_several_runs_is_a_bar():
    fig = steps_over_batch(MEASURED, "t", "", spread={64: (20, 40)})
    drawn = lines(fig)
    assert "measured: median and range" in drawn
    assert [[64, 64], [20, 40]] in [[list(x), list(y)] for x, y in (line.get_data() for line in fig.axes[0].lines)]
