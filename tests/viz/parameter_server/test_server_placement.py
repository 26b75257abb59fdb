import pytest

from dtlearn.parameter_server.placement import balanced, by_range
from dtlearn.viz.parameter_server.server_placement import server_placement, server_placement_words

SHAPES = {"w": (60, 10), "b": (200,), "c": (1,)}


def texts(ax):
    return [text.get_text() for text in ax.texts]


def test_every_piece_is_a_box_as_long_as_its_bytes():
    fig = server_placement({"by_range": by_range(SHAPES, 2), "balanced": balanced(SHAPES, 2)}, "t", "l")
    cut, whole = fig.axes
    boxes = [[patch.get_width() for patch in ax.patches if patch.get_facecolor() != (1, 1, 1, 1)] for ax in fig.axes]
    assert [width for width in boxes[0] if width in (1600, 800, 4)] == [1600, 800, 800, 4]
    assert {"w[0:400]", "w[400:600]", "b", "1.6 kB"} <= set(texts(cut))
    assert {"w", "b", "2.4 kB, 1.5x the mean", "804 bytes"} <= set(texts(whole))
    assert [label.get_text() for label in whole.get_yticklabels()] == ["server 0", "server 1"]


def test_words():
    words = server_placement_words(by_range(SHAPES, 2))
    assert words == "server 0: w[0:400] (1.6 kB); server 1: w[400:600], b, c (1.6 kB)"


def test_no_placement_is_refused():
    with pytest.raises(ValueError, match="a placement is needed"):
        server_placement({})
