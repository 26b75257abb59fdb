import pytest

from dtlearn.viz.zero.stage_fit import stage_fit

GB = 10**9
STAGES = {"stage 0": {"parameters": 90 * GB}, "stage 1": {"parameters": 70 * GB}}


@pytest.mark.parametrize(
    ("chosen", "capacity", "title"),
    [
        ("stage 1", 80, "7B on 8 x X, stage 1: fits"),
        ("stage 0", 80, "7B on 8 x X, stage 0: does not fit; stage 1 would"),
        ("stage 0", 60, "7B on 8 x X: no stage fits"),
    ],
)
def test_the_title_is_the_answer(chosen, capacity, title):
    fig = stage_fit(STAGES, chosen, "X", capacity * GB, "7B on 8 x X", "l")
    assert fig.axes[0].get_title(loc="left") == title


def test_the_chosen_stage_is_marked_and_each_bar_says_whether_it_fits():
    ax = stage_fit(STAGES, "stage 1", "X", 80 * GB, "7B on 8 x X").axes[0]
    assert [text.get_text() for text in ax.get_yticklabels()] == ["stage 0", "> stage 1"]
    assert [text.get_text() for text in ax.texts] == ["90.0 GB does not fit", "70.0 GB fits"]


def test_an_unknown_stage_is_refused():
    with pytest.raises(ValueError, match="'stage 9' is none of the stages 'stage 0', 'stage 1'"):
        stage_fit(STAGES, "stage 9", "X", GB, "7B")
