import pytest

from dtlearn.viz.zero.step_over_tokens import step_over_tokens

PRODUCTS = {1024: 0.015, 4096: 0.06, 16384: 0.24}


def test_the_crossings_are_named_in_tokens():
    ax = step_over_tokens(PRODUCTS, {"stage 3": 0.12, "stage 1": 0.08}, "t", "l").axes[0]
    words = [text.get_text() for text in ax.texts]
    assert {"computation", "stage 3: 8,192 tokens", "stage 1: 5,461 tokens"} <= set(words)
    assert list(ax.lines[0].get_ydata()) == [15.0, 60.0, 240.0]
    assert [text.get_text() for text in ax.get_xticklabels()] == ["1,024", "4,096", "16,384"]


def test_a_crossing_outside_the_figure_has_no_point_but_its_words():
    ax = step_over_tokens(PRODUCTS, {"on a slow link": 1.2}).axes[0]
    assert "on a slow link: 81,920 tokens" in [text.get_text() for text in ax.texts]
    assert len(ax.lines) == 2


@pytest.mark.parametrize(
    "wrong", [({}, {"a": 1}), (PRODUCTS, {}), (PRODUCTS, {"a": 0}), (PRODUCTS, dict.fromkeys("abcdef", 1.0))]
)
def test_bad_input_is_refused(wrong):
    with pytest.raises(ValueError, match="are needed"):
        step_over_tokens(*wrong)
