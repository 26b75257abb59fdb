import pytest

from dtlearn.viz.memory.peak_over_k import peak_over_k

FORMULA = {"GPT": {4: 9e6, 1: 5e6, 2: 6e6}, "chain": {1: 5e6, 2: 4e6, 3: 4e6, 4: 5e6}}


def test_lines_by_formula_points_from_runs_and_the_lowest_in_the_legend():
    fig = peak_over_k(FORMULA, {"GPT": {2: 6.1e6}}, "t", "l")
    lines = {line.get_label(): line for line in fig.axes[0].lines}
    gpt = lines["GPT: lowest at k = 1"]
    assert list(gpt.get_xdata()) == [1, 2, 4] and list(gpt.get_ydata()) == [5, 6, 9]
    assert "chain: lowest at k = 2 to 3" in lines
    points = lines["GPT, measured"]
    assert list(points.get_ydata()) == [6.1] and points.get_linestyle() == "None"
    ring = lines["ring: a k with the lowest peak"]
    rings = [line for line in fig.axes[0].lines if line.get_markersize() == ring.get_markersize()]
    assert [list(line.get_xdata()) for line in rings] == [[1], [2, 3], []], "the last one is the legend's"
    assert fig.axes[0].get_ylim()[0] == 0 and "MB" in fig.axes[0].get_ylabel()


@pytest.mark.parametrize(
    ("formula", "measured"),
    [({}, {}), (FORMULA, {"MLP": {1: 1.0}}), ({"a": {0: 1.0}}, {}), ({"a": {1: 0.0}}, {}), ({"a": {}}, {})],
)
def test_peaks_that_cannot_be_drawn_are_refused(formula, measured):
    with pytest.raises(ValueError, match="models are needed"):
        peak_over_k(formula, measured)
