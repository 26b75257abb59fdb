import pytest

from dtlearn.data_parallel.overlap_model import Scale
from dtlearn.viz.data_parallel.scaling import scaling

PREDICTED = [Scale(n, 10 * n, 1.0, 0.25 * (n > 1)) for n in (1, 2, 4, 8)]
MEASURED = [Scale(1, 10, 1.0, 0.0), Scale(2, 20, 1.0, 0.6), Scale(4, 40, 2.0, 0.5)]


def data(ax, marker):
    lines = [line for line in ax.lines if (line.get_marker() == "o") == marker and line.get_linestyle() != "--"]
    return [list(zip(line.get_xdata(), line.get_ydata(), strict=True)) for line in lines]


def words(fig):
    return [t.get_text() for t in fig.legends[0].get_texts()]


def test_the_line_is_predicted_and_the_points_are_measured():
    left, right = scaling({"1 Gb/s": PREDICTED}, {"1 Gb/s": MEASURED}).axes
    assert data(left, False)[0] == [(1, 10), (2, 16), (4, 32), (8, 64)]
    assert data(right, False)[0] == [(1, 1), (2, 0.8), (4, 0.8), (8, 0.8)]
    assert data(left, True) == [[(1, 10)], [(2, 12.5)], [(4, 16)]]
    assert data(right, True) == [[(1, 1)], [(2, 0.625)], [(4, 0.4)]]


def test_more_ranks_than_cores_is_said():
    fig = scaling({"1 Gb/s": PREDICTED}, {"1 Gb/s": MEASURED}, cores=2)
    left, _ = fig.axes
    points = [line for line in left.lines if line.get_marker() == "o"]
    assert [line.get_markerfacecolor() == "white" for line in points] == [False, False, True]
    (band,) = left.patches
    assert 2 < band.get_x() < 4
    assert words(fig)[-2:] == ["ranks share cores", "more ranks than cores"]


@pytest.mark.parametrize("cores", [None, 4])
def test_enough_cores_need_no_words(cores):
    fig = scaling({"1 Gb/s": PREDICTED}, {"1 Gb/s": MEASURED}, cores=cores)
    assert not fig.axes[0].patches
    assert words(fig) == ["1 Gb/s, predicted", "1 Gb/s, measured", "ideal: N times one rank"]


def test_a_prediction_alone_is_not_crowded():
    fig = scaling({"1 Gb/s": PREDICTED}, cores=2)  # nothing was measured with more ranks than cores
    assert not fig.axes[0].patches


def test_the_emulated_link_is_named_once():
    fig = scaling({"1 Gb/s": PREDICTED}, label="points: gloo on CPU, emulated link: 1 Gb/s")
    left, right = ([t.get_text() for t in ax.texts] for ax in fig.axes)
    assert left == ["points: gloo on CPU, emulated link: 1 Gb/s"] and right == ["emulated link"]


@pytest.mark.parametrize(
    ("predicted", "words"),
    [
        ({}, "one to 3 names, got 0"),
        ({str(n): PREDICTED for n in range(4)}, "one to 3 names, got 4"),
        ({"a": PREDICTED[1:]}, "must begin with 1 and rise, got \\[2, 4, 8\\]"),
        ({"a": [PREDICTED[0], PREDICTED[2], PREDICTED[1]]}, "must begin with 1 and rise"),
        ({"a": []}, "must begin with 1"),
    ],
)
def test_what_cannot_be_drawn_is_refused(predicted, words):
    with pytest.raises(ValueError, match=words):
        scaling(predicted)
