import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from dtlearn.data_parallel import EvaluationSampler, shard_indices
from dtlearn.viz.data_parallel.sample_grid import sample_grid, sample_words
from dtlearn.viz.picture import Picture
from dtlearn.viz.style import RANK_COLORS


def dealt(n, size, **how):
    return [shard_indices(n, size, r, **how) for r in range(size)]


PAD, DROP = dealt(10, 4), dealt(10, 4, drop_last=True)
ONCE = [list(EvaluationSampler(10, 4, r)) for r in range(4)]


def cells(figure, kind):
    """(sample, row, colour) of the cells of that kind: "first", "again" or "never"."""
    boxes = [p for p in figure.axes[0].patches if isinstance(p, Rectangle) and p.get_gid() == kind]
    places = [(b.get_x() + b.get_width() / 2, b.get_y() + b.get_height() / 2, to_hex(b.get_facecolor())) for b in boxes]
    return sorted((round(x), round(y), color.upper()) for x, y, color in places)


def words(figure):
    return [t.get_text() for t in figure.axes[0].texts]


def test_each_cell_has_the_colour_and_the_number_of_its_rank():
    figure = sample_grid([ONCE], 10)
    assert cells(figure, "first") == [(s, 0, RANK_COLORS[s % 4]) for s in range(10)]
    assert cells(figure, "again") == cells(figure, "never") == []
    assert words(figure) == [*(str(s % 4) for s in range(10)), "each seen once"]
    assert [t.get_text() for t in figure.legends[0].get_texts()] == [f"rank {r}" for r in range(4)]


def test_padding_is_hatched_and_what_is_dropped_is_empty():
    figure = sample_grid([PAD, DROP], 10, rows=["pad", "drop"], title="T", label="a label")
    # Samples 0 and 1 come again, on ranks 2 and 3.
    assert cells(figure, "again") == [(0, 0, RANK_COLORS[2]), (1, 0, RANK_COLORS[3])]
    assert cells(figure, "never") == [(8, 1, "#FFFFFF"), (9, 1, "#FFFFFF")]
    assert len(cells(figure, "first")) == 18
    hatched = [p for p in figure.axes[0].patches if p.get_hatch()]
    assert [p.get_gid() for p in hatched] == ["again", "again"]
    assert {"2 seen twice", "2 never seen", "a label"} <= set(words(figure))
    ax = figure.axes[0]
    assert [t.get_text() for t in ax.get_yticklabels()] == ["pad", "drop"] and ax.get_title(loc="left") == "T"
    assert [t.get_text() for t in figure.legends[0].get_texts()][4:] == ["seen again (padding)", "seen by no rank"]


def test_the_first_in_time_is_on_top():
    figure = sample_grid([[[1, 0], [0, 1]]], 2)
    tops = {(round(p.get_x() + p.get_width() / 2), p.get_gid()): p.get_y() for p in figure.axes[0].patches}
    assert tops[0, "first"] < tops[0, "again"]  # the y axis runs down
    assert cells(figure, "first") == [(0, 0, RANK_COLORS[1]), (1, 0, RANK_COLORS[0])]


def test_more_ranks_than_samples():
    figure = sample_grid([dealt(3, 8)], 3)
    assert len(cells(figure, "first")) == 3 and len(cells(figure, "again")) == 5  # one for each of 8 ranks
    assert "3 seen repeatedly" in words(figure)


def test_many_samples_have_colours_only():
    figure = sample_grid([dealt(100, 4)], 100)
    assert words(figure) == ["each seen once"]
    assert len(cells(figure, "first")) == 100


def test_nothing_is_cut_off():
    figure = sample_grid([dealt(40, 12)] * 5, 40, rows=["a rather long name of a row"] * 5, label="a label")
    Picture(figure, "x").png()
    box, page = figure.get_tightbbox(), figure.bbox_inches
    assert page.x0 <= box.x0 and page.y0 <= box.y0 and box.x1 <= page.x1 and box.y1 <= page.y1


def test_in_words():
    assert sample_words([PAD, DROP, ONCE], 10, ["Pad", "Drop", "Evaluation"]) == (
        "10 samples. Pad: 4 ranks, 2 seen twice. Drop: 4 ranks, 2 never seen. Evaluation: 4 ranks, each seen once."
    )
    forgotten = [dealt(20, 2, shuffle=True)] * 2 + [dealt(20, 2, shuffle=True, epoch=1)]
    assert sample_words(forgotten, 20) == (
        "20 samples. Epoch 0: 2 ranks, each seen once. Epoch 1: 2 ranks, each seen once, in the same order as epoch 0. "
        "Epoch 2: 2 ranks, each seen once."
    )


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (([], 10), "at least one epoch"),
        (([PAD], 0), "1 to 200 samples"),
        (([PAD], 201), "1 to 200 samples"),
        (([PAD], 9), "epoch 0, rank 1: 9 is no sample"),
        (([[]], 3), "1 to 16 ranks"),
        (([[[]] * 17], 3), "1 to 16 ranks"),
        (([PAD], 10, ["a", "b"]), "each of the 1 rows, got 2 names"),
    ],
)
def test_bad_input(arguments, reason):
    for call in (sample_grid, sample_words):
        with pytest.raises(ValueError, match=reason):
            call(*arguments)
