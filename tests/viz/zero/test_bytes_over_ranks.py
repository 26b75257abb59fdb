import pytest

from dtlearn.viz.zero.bytes_over_ranks import bytes_over_ranks

CURVES = {"stage 1": {1: 16e9, 4: 7e9}, "stage 3": {1: 16e9, 4: 4e9}}


def test_curves_points_and_gpus_are_drawn_in_gb_and_named():
    fig = bytes_over_ranks(CURVES, {"stage 3": {4: 4.1e9}}, {"T4": 16.1e9}, "t", "l")
    ax = fig.axes[0]
    lines = [list(line.get_ydata()) for line in ax.lines]
    assert lines == [[16, 7], [], [16, 4], [4.1], [16.1, 16.1]]
    assert {"stage 1", "stage 3"} <= {text.get_text() for text in ax.texts}
    legend = [text.get_text() for text in fig.legends[0].get_texts()]
    assert legend == ["stage 1", "stage 3, points: printed", "T4: 16.1 GB"]
    assert [text.get_text() for text in ax.get_xticklabels()] == ["1", "4"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (({},), "1 to 5 curves"),
        ((CURVES, {"stage 2": {1: 1.0}}), "points of these curves"),
        ((CURVES, None, dict.fromkeys("abcd", 1.0)), "at most 3 GPUs"),
        (({"stage 1": {1: 0.0}},), "no place for 0 bytes"),
    ],
)
def test_bad_input_is_refused(arguments, says):
    with pytest.raises(ValueError, match=says):
        bytes_over_ranks(*arguments)
