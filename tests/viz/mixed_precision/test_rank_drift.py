import pytest

from dtlearn.viz.mixed_precision.rank_drift import rank_drift
from dtlearn.viz.style import RANK_COLORS

SCALES, SKIPPED = [[8.0, 8.0], [4.0, 4.0]], [[False, False], [True, False]]


def test_scales_by_rank_on_the_left_and_differences_by_run_on_the_right():
    fig = rank_drift(SCALES, SKIPPED, {"alone": [0.9, 1.0], "agreed": [0.0, 0.0]}, "t", "l")
    left, right = fig.axes
    ranks = {line.get_label(): line for line in left.lines}
    assert list(ranks["rank 0"].get_ydata()) == [3, 3] and list(ranks["rank 1"].get_ydata()) == [2, 2]
    assert ranks["rank 1"].get_color() == RANK_COLORS[1]
    assert list(ranks["skipped step"].get_xdata()) == [1] and list(ranks["skipped step"].get_ydata()) == [2]
    runs = {line.get_label(): list(line.get_ydata()) for line in right.lines}
    assert runs == {"alone": [0.9, 1.0], "agreed": [0.0, 0.0]}
    assert len(fig.legends[0].get_texts()) == 5


@pytest.mark.parametrize(
    ("scales", "skipped", "differences"),
    [
        ([], [], {"a": []}),
        (SCALES, SKIPPED, {}),
        (SCALES, SKIPPED, {"a": [1.0]}),
        ([[1.0]] * 5, [[False]] * 5, {"a": [1.0]}),
    ],
)
def test_what_does_not_fit_together_is_refused(scales, skipped, differences):
    with pytest.raises(ValueError, match="1 to 4 ranks and runs of one length"):
        rank_drift(scales, skipped, differences)
