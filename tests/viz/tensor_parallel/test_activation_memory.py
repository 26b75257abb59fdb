import pytest

from dtlearn.viz.tensor_parallel.activation_memory import activation_memory

LINES = {"whole": {1: 8e6, 2: 8e6, 8: 8e6}, "TP": {1: 8e6, 2: 5e6, 8: 2.75e6}, "SP": {1: 8e6, 2: 4e6, 8: 1e6}}


def test_lines_are_formulas_and_points_are_measured():
    fig = activation_memory(LINES, {"TP": {2: 5e6}}, ("stays", 2e6), "t", "l")
    ax = fig.axes[0]
    lines = [line for line in ax.lines if line.get_linestyle() != "None" and len(line.get_xdata()) == 3]
    assert [list(line.get_ydata()) for line in lines] == [[8, 8, 8], [8, 5, 2.75], [8, 4, 1]]
    points = [line for line in ax.lines if line.get_linestyle() == "None" and len(line.get_xdata())]
    assert [(list(p.get_xdata()), list(p.get_ydata())) for p in points] == [([1], [5])]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["1", "2", "8"]
    legend = [text.get_text() for text in fig.legends[0].get_texts()]
    assert legend == ["whole", "TP, points: measured", "SP", "stays"]


def test_names_at_the_ends_of_lines_do_not_lie_on_each_other():
    ax = activation_memory({"a": {1: 1e6}, "b": {1: 1e6}, "c": {1: 1.01e6}}).axes[0]
    heights = sorted(
        text.xyann[1] if text.xy[0] != 1.0 else text.xy[1] for text in ax.texts if text.get_text() in "abc"
    )
    assert heights[1] - heights[0] > 0.05 and heights[2] - heights[1] > 0.05


def test_points_need_a_line():
    with pytest.raises(ValueError, match=r"points of these lines only; got .'TP'., points of .'SP'"):
        activation_memory({"TP": {1: 1.0}}, {"SP": {1: 1.0}})
    with pytest.raises(ValueError, match="points of these lines only"):
        activation_memory({"TP": {1: 1.0}}, {"TP": {2: 1.0}})
    with pytest.raises(ValueError, match="bytes of 0 or more"):
        activation_memory({"TP": {1: -1.0}})
    with pytest.raises(ValueError, match="1 to 5 lines"):
        activation_memory({})
