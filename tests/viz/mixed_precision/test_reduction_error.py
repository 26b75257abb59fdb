import pytest

from dtlearn.viz.mixed_precision.reduction_error import reduction_error

SIMULATED = {"ring": {8: 0.003, 2: 0.001}, "tree": {2: 0.001, 8: 0.002}}


def test_lines_are_simulated_and_points_measured():
    fig = reduction_error(SIMULATED, {"ring": {2: 0.0011}}, "t", "l")
    lines = {line.get_label(): line for line in fig.axes[0].lines}
    assert set(lines) == {"ring, simulated", "tree, simulated", "ring, measured"}
    assert list(lines["ring, simulated"].get_xdata()) == [2, 8]
    assert list(lines["ring, simulated"].get_ydata()) == [0.001, 0.003]
    points = lines["ring, measured"]
    assert list(points.get_ydata()) == [0.0011] and points.get_linestyle() == "None"
    assert (fig.axes[0].get_xscale(), fig.axes[0].get_yscale()) == ("log", "log")
    assert [tick.get_text() for tick in fig.axes[0].get_xticklabels()] == ["2", "8"]


def test_a_point_is_seen_around_a_later_one_that_lies_on_it():
    same = {name: {2: 0.001} for name in ("ring", "tree", "halving-doubling")}
    points = [line for line in reduction_error(same, same).axes[0].lines if line.get_linestyle() == "None"]
    widths = [line.get_markersize() * (2**0.5 if line.get_marker() == "D" else 1) for line in points]
    assert len(widths) == 3 and widths == sorted(widths, reverse=True)


@pytest.mark.parametrize(
    ("simulated", "measured"),
    [({}, {}), (SIMULATED, {"star": {2: 0.1}}), ({"ring": {2: 0.0}}, {}), ({str(n): {2: 0.1} for n in range(6)}, {})],
)
def test_errors_that_cannot_be_drawn_are_refused(simulated, measured):
    with pytest.raises(ValueError, match="simulated algorithms are needed"):
        reduction_error(simulated, measured)
