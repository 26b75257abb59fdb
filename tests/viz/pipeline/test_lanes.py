import pytest

from dtlearn.viz.pipeline.bars import Bar
from dtlearn.viz.pipeline.lanes import lanes_figure
from tests.viz.pipeline.runs import GPIPE

WORDS = ("t", "l", "time", "{:.4g} long")


def texts(ax):
    return [text.get_text() for text in ax.texts]


def test_boxes_lie_where_the_bars_say_and_carry_letter_and_microbatch():
    ax = lanes_figure({"": GPIPE}, *WORDS).axes[0]
    boxes = {box.get_gid(): box for box in ax.patches if box.get_gid()}
    assert (boxes["1B0"].get_x(), boxes["1B0"].get_width()) == (3, 2)
    assert boxes["1B0"].get_hatch() == "--" and not boxes["0F0"].get_hatch()
    assert texts(ax).count("F0") == 2, "each rank has one stage, which is not repeated"
    assert [label.get_text() for label in ax.get_yticklabels()] == ["rank 0", "rank 1"]


def test_the_bubble_stands_over_each_panel_in_both_conventions():
    fig = lanes_figure({"GPipe": GPIPE, "again": GPIPE}, *WORDS)
    said = "9 long; bubble: idle / useful = 50.0 %, idle / total = 33.3 %"
    assert [ax.get_title(loc="left") for ax in fig.axes] == [f"GPipe: {said}", f"again: {said}"]
    assert len({ax.get_xlim() for ax in fig.axes}) == 1


def test_with_several_stages_on_a_rank_the_stage_is_said():
    ax = lanes_figure({"": [*GPIPE, Bar(0, 2, "F", 0, 9, 10)]}, *WORDS).axes[0]
    assert "2F0" in texts(ax) and "0F0" in texts(ax)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["rank 0: stages 0, 2", "rank 1: stage 1"]


def test_a_narrow_box_has_its_number_only_or_nothing():
    bars = [Bar(0, 0, "F", n, n, n + 1) for n in range(70)]
    assert texts(lanes_figure({"": bars}, *WORDS).axes[0])[:2] == ["0", "1"]
    bars = [Bar(0, 0, "F", n, n, n + 1) for n in range(200)]
    assert not texts(lanes_figure({"": bars}, *WORDS).axes[0])


def test_emulated_times_are_said_in_a_box_of_their_own():
    plain, emulated = (lanes_figure({"": GPIPE}, "t", label, "time", "{}") for label in ("l", "Emulated stage times"))
    assert "emulated stage times" in [text.get_text() for text in emulated.texts]
    assert "emulated stage times" not in [text.get_text() for text in plain.texts]


@pytest.mark.parametrize("panels", [{}, {"": []}, {"": [Bar(0, 0, "F", 0, 0, 0)]}])
def test_panels_without_anything_to_draw_are_refused(panels):
    with pytest.raises(ValueError, match="an action that takes time"):
        lanes_figure(panels, *WORDS)


def test_all_texts_of_a_figure_have_one_size_and_one_form():
    """Measured boxes differ by chance in their widths; a larger letter, or one that is missing, would say something."""
    widths = [20 + 7 * (n % 5) for n in range(40)]
    starts = [sum(widths[:n]) for n in range(40)]
    bars = [
        Bar(0, 0, "FIW"[n % 3], n, start, start + width)
        for n, (start, width) in enumerate(zip(starts, widths, strict=True))
    ]
    figure = lanes_figure({"": bars}, *WORDS)
    found = figure.axes[0].texts
    assert "numbers: micro-batches" in [text.get_text() for text in figure.legends[0].get_texts()]
    assert len({text.get_size() for text in found}) == 1 and len(found) >= 0.9 * len(bars)
    assert all(text.get_text().isdigit() for text in found)
