import pytest

from dtlearn.viz.memory.stacked_bars import stacked_bars

BARS = {"small": {"gradients": 4e9, "parameters": 6e9}, "large": {"parameters": 150e9}}


def test_bars_are_stacked_from_parameters_up_and_end_with_their_sum():
    fig = stacked_bars(BARS, {"80 GB GPU": 80e9, "40 GB GPU": 40e9}, title="t", label="l", notes={"small": "fits"})
    (ax,) = fig.axes
    widths = [(bar.get_x(), bar.get_width()) for bar in ax.patches]
    assert widths == [(0, 6), (6, 4), (0, 150), (150, 0)]
    words = {text.get_text(): text.get_color() for text in ax.texts}
    assert words["10.0 GB fits"] != words["150 GB"], "what exceeds the largest GPU has another colour"
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["small", "large"]
    assert [text.get_text() for text in fig.legends[0].get_texts()] == [
        "parameters",
        "gradients",
        "80 GB GPU",
        "40 GB GPU",
    ]


def test_no_line_goes_through_words():
    def place(bar, capacity):
        ax = stacked_bars({"a": {"parameters": bar}, "long": {"parameters": 185e9}}, {"GPU": capacity}).axes[0]
        return ax.texts[0].get_position()[0]

    assert place(143e9, 60e9) < 150.8 < place(143e9, 150.8e9), "moved behind the line"
    assert place(50e9, 60e9) > 60 and place(50e9, 150.8e9) < 60, "a line farther off moves nothing"


def test_what_is_too_small_to_see_is_not_in_the_legend():
    fig = stacked_bars({"a": {"parameters": 1e9, "temporaries": 4.0}})
    assert [text.get_text() for text in fig.legends[0].get_texts()] == ["parameters"]


def test_other_units_and_no_capacity():
    ax = stacked_bars({"a": {"inputs": 0.25e6}}, unit="MB").axes[0]
    assert ax.get_xlabel() == "MB (10⁶ bytes)" and "0.25 MB" in [text.get_text() for text in ax.texts]


@pytest.mark.parametrize(
    ("bars", "options"),
    [
        ({}, {}),
        (BARS, {"unit": "GiB"}),
        (BARS, {"notes": {"tiny": "x"}}),
        ({"a": {"parameters": -1}}, {}),
        (BARS, {"capacity": dict.fromkeys("abcde", 1.0)}),
    ],
)
def test_bars_that_cannot_be_drawn_are_refused(bars, options):
    with pytest.raises(ValueError, match="bars are needed"):
        stacked_bars(bars, **options)


def test_a_category_without_a_look_is_refused():
    with pytest.raises(ValueError, match="categories are"):
        stacked_bars({"a": {"weights": 1.0}})
