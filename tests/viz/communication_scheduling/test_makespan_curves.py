import pytest

from dtlearn.viz.communication_scheduling.makespan_curves import makespan_curves

CURVES = {"FIFO": {100: 5.0, 200: 5.0, 400: 5.0}, "priority": {100: 30.0, 200: 4.0, 400: 4.0, 800: 4.5}}


def drawn(ax):
    return {line.get_label(): list(zip(*map(list, line.get_data()), strict=True)) for line in ax.lines}


def test_lines_points_and_the_best_size():
    fig = makespan_curves(CURVES, {"priority": {200: 4.2}}, knee=150, bound=3.0)
    (ax,) = fig.axes
    lines = drawn(ax)
    assert lines["FIFO"] == [(100, 5.0), (200, 5.0), (400, 5.0)]
    assert lines["priority"] == [(100, 30.0), (200, 4.0), (400, 4.0), (800, 4.5)]
    assert [(200, 4.2)] in lines.values()
    # The largest of the best sizes; FIFO has none, its sizes are alike.
    assert [text.get_text() for text in ax.texts if "best" in text.get_text()] == ["best: 400 bytes, 4 s"]
    assert [text.get_text() for text in fig.legends[0].get_texts()] == [
        "FIFO",
        "priority",
        "priority, measured",
        "no order takes less",
    ]
    assert any(text.get_text() == "latency = transfer" for text in ax.texts)
    # The size at which nearly all is latency does not press the others flat.
    assert 8 < ax.get_ylim()[1] < 10


def test_the_chosen_size_is_marked_in_place_of_the_best():
    (ax,) = makespan_curves(CURVES, chosen=("priority", 800)).axes
    assert [text.get_text() for text in ax.texts] == ["800 bytes, 4.5 s"]
    assert [(800, 4.5)] in drawn(ax).values()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"curves": {}}, "1 to 5 curves"),
        ({"curves": {"FIFO": {}}}, "1 to 5 curves"),
        ({"curves": CURVES, "measured": {"other": {1: 1.0}}}, "points of the same names"),
        ({"curves": CURVES, "chosen": ("FIFO", 800)}, "one of its sizes"),
    ],
)
def test_what_cannot_be_drawn_is_refused(arguments, words):
    with pytest.raises(ValueError, match=words):
        makespan_curves(**arguments)
