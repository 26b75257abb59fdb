import pytest

from dtlearn.viz.pipeline.live_activations import live_activations

GPIPE, ONE = [8, 8, 8, 8], [4, 3, 2, 1]


def test_bars_are_what_was_measured_and_lines_what_theory_says():
    fig = live_activations({"GPipe": GPIPE, "1F1B": [4, 3, 3, 1]}, {"GPipe": GPIPE, "1F1B": ONE}, "t", "l")
    ax = fig.axes[0]
    assert [bar.get_height() for bar in ax.patches] == [8, 8, 8, 8, 4, 3, 3, 1]
    assert [line.get_ydata()[0] for line in ax.lines if line.get_gid() == "theory"] == [*GPIPE, *ONE]
    assert [label.get_text() for label in ax.get_xticklabels()] == [f"rank {rank}" for rank in range(4)]
    legend = [text.get_text() for text in fig.legends[0].get_texts()]
    assert legend == ["GPipe, measured", "1F1B, measured", "theory"]
    assert len({bar.get_hatch() for bar in ax.patches}) == 2


@pytest.mark.parametrize(
    ("measured", "theory"),
    [({}, {}), ({"a": ONE}, {"b": ONE}), ({"a": ONE}, {"a": ONE[1:]}), ({"a": []}, {"a": []})],
)
def test_what_cannot_be_compared_is_refused(measured, theory):
    with pytest.raises(ValueError, match="on the same ranks"):
        live_activations(measured, theory)
