import pytest

from dtlearn.viz.memory.held_after_steps import growth, held_after_steps


def test_growth_is_the_mean_from_the_second_step_on():
    assert growth([5.0, 10.0, 13.0, 16.0]) == 3.0
    assert growth([5.0, 10.0, 10.0]) == 0.0


def test_a_line_per_loop_with_its_growth():
    fig = held_after_steps({"graph kept": [1e6, 4e6, 7e6], "item": [1e6, 1e6, 1e6]}, "t", "l")
    (ax,) = fig.axes
    kept, item = ax.lines
    assert list(kept.get_xdata()) == [1, 2, 3] and list(kept.get_ydata()) == [1, 4, 7]
    assert kept.get_label() == "graph kept: +3.00 MB a step" and item.get_label() == "item: level"
    assert ax.get_ylim()[0] == 0 and "MB" in ax.get_ylabel()


@pytest.mark.parametrize(
    "held", [{}, {"a": [1.0, 2.0]}, {"a": [1.0, -1.0, 1.0]}, {str(n): [1.0] * 3 for n in range(6)}]
)
def test_loops_that_cannot_be_drawn_are_refused(held):
    with pytest.raises(ValueError, match="3 steps or more"):
        held_after_steps(held)
