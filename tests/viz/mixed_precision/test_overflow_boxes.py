"""Boxes of ranks: what each holds, and whose gradient is infinite."""

import pytest

from dtlearn.viz.mixed_precision.overflow_boxes import overflow_boxes
from dtlearn.viz.style import ALARM

HELD = [{"its own part": "finite", "a copy of v": "finite"}, {"its own part": "inf", "a copy of v": "finite"}]


def test_each_rank_has_a_box_and_the_overflow_stands_out():
    (ax,) = overflow_boxes(HELD, "t", "l").axes
    texts = {text.get_text(): text for text in ax.texts}
    assert {"rank 0", "rank 1", "its own part", "a copy of v", "gradient: infinite"} <= set(texts)
    assert texts["gradient: infinite"].get_color() == ALARM and texts["gradient: finite"].get_color() != ALARM
    assert len(ax.patches) == 2 + 4


@pytest.mark.parametrize("ranks", [[], [{}], [{"w": "inf"}] * 5])
def test_what_cannot_be_drawn_is_refused(ranks):
    with pytest.raises(ValueError, match="1 to 4 ranks"):
        overflow_boxes(ranks)
