import pytest

from dtlearn.viz.tensor_parallel.bandwidth_cliff import bandwidth_cliff

TIMES = {1: (8e-3, 0.0), 2: (4e-3, 1e-3), 4: (2e-3, 6e-3)}


def texts(fig):
    return [text.get_text() for text in fig.axes[0].texts]


def test_communication_stands_on_computation_and_the_fastest_is_named():
    fig = bandwidth_cliff(TIMES, 2, title="t", label="a model")
    bars = [(p.get_gid(), p.get_y(), p.get_height()) for p in fig.axes[0].patches]
    assert bars[2:4] == [("compute", 0, 4e-3), ("send", 4e-3, 1e-3)]
    assert texts(fig)[:3] == ["8 ms", "fastest: 5 ms\n20 %", "8 ms\n75 %"]


def test_a_line_stands_where_the_node_ends():
    fig = bandwidth_cliff(TIMES, 2)
    assert [line.get_xdata()[0] for line in fig.axes[0].lines if len(line.get_xdata()) == 2] == [1.5]
    assert {"in one node", "more nodes than one"} <= set(texts(fig))
    assert "in one node" not in texts(bandwidth_cliff(TIMES, 4))


def test_measured_points_and_an_emulated_link_are_labelled():
    fig = bandwidth_cliff(TIMES, 2, {1: 9e-3, 4: 7.5e-3}, label="gloo on CPU, emulated link")
    points = next(line for line in fig.axes[0].lines if line.get_marker() == "D")
    assert (list(points.get_xdata()), list(points.get_ydata())) == ([0, 2], [9e-3, 7.5e-3])
    assert {"emulated link", "9 ms", "7.5 ms"} <= set(texts(fig))
    assert [text.get_text() for text in fig.legends[0].get_texts()][-1] == "measured"


def test_words_do_not_lie_on_a_point():
    def height(seconds):
        texts = bandwidth_cliff(TIMES, 2, {4: seconds}).axes[0].texts
        return next(text.get_position()[1] for text in texts if text.get_text().startswith("8 ms\n"))

    assert height(7e-3) == height(8e-3) < 8.5e-3  # on the bar or in it
    assert all(height(point) > point + 0.2e-3 for point in (8.5e-3, 9.5e-3))
    assert height(12e-3) < 8.6e-3  # far above


def test_bad_times():
    for times, node, measured in (({}, 2, {}), (TIMES, 0, {}), (TIMES, 2, {8: 1.0}), ({1: (-1.0, 0.0)}, 2, {})):
        with pytest.raises(ValueError, match="points only where a bar is"):
            bandwidth_cliff(times, node, measured)
