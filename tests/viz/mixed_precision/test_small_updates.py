import pytest

from dtlearn.viz.mixed_precision.small_updates import small_updates


def test_each_way_is_a_line_beside_the_exact_sum():
    fig = small_updates({"nearest": [1.0, 1.0, 1.0], "master": [1.0, 1.1, 1.2]}, 0.1, "t", "l")
    lines = {line.get_label(): list(line.get_ydata()) for line in fig.axes[0].lines}
    assert lines.pop("exact sum") == pytest.approx([1.0, 1.2])
    assert lines == {"nearest: ends at 1": [1.0, 1.0, 1.0], "master: ends at 1.2": [1.0, 1.1, 1.2]}
    assert fig.axes[0].get_xlabel() == "updates" and fig.axes[0].get_xlim() == (0, 2)


@pytest.mark.parametrize(
    "weights",
    [{}, {"a": [1.0, 1.0], "b": [1.0]}, {"a": [1.0], "b": [2.0]}, {str(n): [1.0] for n in range(6)}],
)
def test_ways_that_do_not_compare_are_refused(weights):
    with pytest.raises(ValueError, match="of one length and one start"):
        small_updates(weights, 0.1)
