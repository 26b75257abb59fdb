import pytest

from dtlearn.viz.tensor_parallel.local_weights import LocalWeight, cut_weights
from dtlearn.viz.tensor_parallel.weight_layout import ACROSS, WeightLayout, drawn, titles, weight_layout
from tests.viz.tensor_parallel.layers import WEIGHTS

NAMES = ("query", "key", "value", "output")
NORMS = [LocalWeight("attention_norm.weight", (8,), None), LocalWeight("feed_forward_norm.weight", (8,), None)]
HIGH = LocalWeight("feed_forward.down.weight", (8, 128), 1)
WIDE = LocalWeight("feed_forward.up.weight", (256, 8), 0)


def cut(*weights):
    return cut_weights([weights, weights])


def names(*weights):
    """The names of the groups in each cell, row by row."""
    return [[[name for name, _ in cell] for cell in row] for row in weight_layout(cut(*weights)).rows]


def test_weights_stand_as_the_input_meets_them():
    by_name = {weight.name: drawn(weight) for weight in cut(*WEIGHTS)}
    assert by_name["table.weight"] == (16, 4, 0)  # tokens are rows
    assert by_name["attention.query.weight"] == (8, 8, 1)
    assert by_name["attention.query.bias"] == (1, 8, 1)
    assert by_name["attention.output.weight"] == (8, 8, 0)
    assert by_name["norm.weight"] == (1, 8, None)
    assert drawn(cut(WIDE)[0]) == (8, 512, 1)


def test_titles():
    assert titles(cut(LocalWeight("a.feed_forward_norm.weight", (1024,), None))) == ("feed-forward norm", "1,024")
    assert titles(cut(HIGH)) == ("down", "256 x 8")


def test_modules_of_one_parent_stand_beside_each_other():
    attention = weight_layout(cut(*WEIGHTS[1:])).rows[0][0]
    assert [name for name, _ in attention] == ["attention"]
    assert [[len(module) for module in column] for column in attention[0][1]] == [[2], [2]]  # with their biases


def test_norms_stand_where_there_is_room():
    low = [LocalWeight(f"attention.{name}.weight", (4, 8), 0) for name in NAMES]
    both = [LocalWeight(f"{name}.{part}.weight", (256, 8), 0) for name in "ab" for part in "xy"]
    assert names(*NORMS) == [[["norms"]]]
    assert names(*NORMS, HIGH) == [[["feed_forward"], ["norms"]]]  # at the end of the row
    assert names(*low, WIDE, HIGH, *NORMS) == [[["attention", "norms"], ["feed_forward"]]]  # below low ones
    assert names(*both, *NORMS) == [[["a"]], [["b"]], [["norms"]]]


def test_everything_fits_its_row():
    layout = weight_layout(cut(*WEIGHTS, WIDE, HIGH, *NORMS))
    assert all(layout.row_width(row) <= ACROSS + 0.5 for row in layout.rows)
    for row in layout.rows:
        assert layout.row_height(row) == max(layout.cell_height(cell) for cell in row)
    assert layout.height([WEIGHTS[1]]) == pytest.approx(0.5 + 8 * layout.inches)
    assert WeightLayout(0.1).weight_height(cut(NORMS[0])[0]) == pytest.approx(0.19)
