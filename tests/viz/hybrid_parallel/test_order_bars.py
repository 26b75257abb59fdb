import pytest

from dtlearn.hybrid_parallel.layout import MeshLayout
from dtlearn.hybrid_parallel.rank_order import compare_orders
from dtlearn.viz.hybrid_parallel.looks import AXES
from dtlearn.viz.hybrid_parallel.order_bars import order_bars, order_words
from tests.viz.hybrid_parallel.boxes import cut_off, overlapping

COSTS = compare_orders(MeshLayout(tp=2, pp=2, dp=2), {"tp": 4e6, "pp": 1e5, "dp": 8e5}, ranks_per_node=4)


def test_the_innermost_axis_decides_and_the_bars_are_the_bytes():
    (ax,) = order_bars(COSTS).axes
    names = [tick.get_text() for tick in ax.get_yticklabels()]
    assert names == [str(cost.layout) for cost in COSTS] and names[0] == "tp2 dp2 pp2"
    lengths = {}
    for bar in ax.patches:
        row = round(bar.get_y() + bar.get_height() / 2)
        lengths[row] = lengths.get(row, 0) + bar.get_width()
    assert [lengths[row] for row in range(6)] == pytest.approx([cost.total / 1e6 for cost in COSTS])
    assert "(MB)" in ax.get_xlabel()
    # With tp outermost all its 8 links leave a node, and nothing else does.
    assert [text.get_text() for text in ax.texts][4:6] == ["32 MB", "32 MB"]
    assert ax.patches[-1].get_hatch() == AXES["tp"].hatch


def test_measured_seconds_stand_beside_the_orders_that_were_measured():
    measured = {"tp2 dp2 pp2": 0.02, "dp2 pp2 tp2": 0.07}
    fig = order_bars(COSTS, measured)
    _, times = fig.axes
    bars = {round(bar.get_y() + bar.get_height() / 2): bar.get_width() for bar in times.patches}
    assert bars == pytest.approx({0: 20, 5: 70}) and "(ms)" in times.get_xlabel()
    words = [text.get_text() for text in times.texts]
    assert words == ["20 ms", *["not measured"] * 4, "70 ms"]
    emulated = order_bars(COSTS, measured, label="8 ranks on an emulated link of 5 MB/s")
    assert "emulated link" in [text.get_text() for text in emulated.axes[1].texts], "in a box of its own"
    texts = [text for ax in fig.axes for text in (*ax.texts, *ax.get_yticklabels(), ax.xaxis.label)]
    assert not overlapping(fig, [text for text in texts if text.get_visible()]) and not cut_off(fig, texts)


def test_an_order_that_sends_nothing_says_so():
    (cost,) = compare_orders(MeshLayout(tp=2), {"tp": 4e6}, ranks_per_node=2)
    (ax,) = order_bars([cost]).axes
    assert ax.texts[0].get_text() == "nothing" and not ax.patches


def test_words():
    assert "tp2 dp2 pp2, 400 kB and 20 ms; dp2 tp2 pp2, 400 kB;" in order_words(COSTS, {"tp2 dp2 pp2": 0.02})


def test_bad_input():
    with pytest.raises(ValueError, match=r"seconds of \['tp8'\]"):
        order_bars(COSTS, {"tp8": 1.0})
    with pytest.raises(ValueError, match="orders are needed"):
        order_bars([])
