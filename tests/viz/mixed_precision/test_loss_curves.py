import pytest

from dtlearn.viz.mixed_precision.loss_curves import loss_curves


def test_points_are_means_of_five_steps_and_numbers_of_the_last_ten():
    falling = [20.0 - step for step in range(20)]
    fig = loss_curves({"fp32": falling, "fp16": [2.0] * 20}, "t", "a GPT")
    first, second = fig.axes[0].lines
    assert list(first.get_xdata()) == list(range(5, 21))
    assert list(first.get_ydata())[:2] == [18.0, 17.0] and set(second.get_ydata()) == {2.0}
    assert [line.get_label() for line in (first, second)] == ["fp32: 5.500", "fp16: 2.000"]
    assert any("a GPT; lines: mean of 5 steps" in text.get_text() for text in fig.axes[0].texts)


@pytest.mark.parametrize("losses", [{}, {"a": [1.0] * 4}, {str(n): [1.0] * 5 for n in range(6)}])
def test_curves_that_cannot_be_drawn_are_refused(losses):
    with pytest.raises(ValueError, match="5 steps or more"):
        loss_curves(losses)
