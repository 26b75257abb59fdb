import pytest

from dtlearn.viz.tensor_parallel.layer_traffic import layer_traffic

SENT = {
    "TP": {1: {}, 2: {"all_reduce": 4000.0}, 4: {"all_reduce": 6000.0}},
    "SP": {2: {"all_gather": 2000.0, "reduce_scatter": 2000.0}, 4: {"all_gather": 3000.0, "reduce_scatter": 3000.0}},
}
FORMULA = {kind: {1: 0.0, 2: 4000.0, 4: 6000.0} for kind in SENT}


def test_bars_are_stacked_and_the_formula_is_a_mark_on_each():
    fig = layer_traffic(SENT, FORMULA, ("limit", 8000.0), "t", "l")
    ax = fig.axes[0]
    assert [patch.get_gid() for patch in ax.patches].count("all_reduce") == 2
    gather, scatter = (next(p for p in ax.patches if p.get_gid() == op) for op in ("all_gather", "reduce_scatter"))
    assert gather.get_height() == 2 and scatter.get_y() == 2 and scatter.get_x() == gather.get_x()
    marks = [line.get_ydata()[0] for line in ax.lines]
    assert marks == [0, 4, 4, 6, 6, 8]
    assert [text.get_text() for text in ax.texts if text.get_text()[0].isdigit()] == ["0", "4", "4", "6", "6"]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["t = 1", "t = 2", "t = 4"]
    legend = [text.get_text() for text in fig.legends[0].get_texts()]
    assert legend == ["all_gather", "all_reduce", "reduce_scatter", "formula", "limit"]


def test_a_bar_without_a_formula_is_refused():
    with pytest.raises(ValueError, match="a formula for each kind and number of ranks"):
        layer_traffic(SENT, {"TP": FORMULA["TP"]})
    with pytest.raises(ValueError, match="bytes of a layer are needed"):
        layer_traffic({}, {})
