import pytest
from matplotlib.figure import Figure

from dtlearn.tensor_parallel.notation.product_case import product_case
from dtlearn.tensor_parallel.notation.product_steps import product_steps
from dtlearn.viz.style import INK
from dtlearn.viz.tensor_parallel.product_picture import frame_size, product_figure, product_frames, product_words

PARTIAL = product_steps(product_case("X[I, J_t]", "W[J_t, K]", name="Y"), 2)  # four block products, then an all-reduce
GATHERED = product_steps(product_case("X[I_t, J]", "W[J, K_t]", name="Y"), 2)


def axes_of(steps, number):
    ax = Figure().add_subplot()
    product_frames(steps)[0][number](ax)
    return ax


def texts(ax):
    return [text.get_text() for text in ax.texts]


def count(ax, gid):
    return sum(patch.get_gid() == gid for patch in ax.patches)


def framed(ax):
    return sum(not patch.get_fill() and patch.get_edgecolor()[:3] == pytest.approx(_rgb(INK)) for patch in ax.patches)


def _rgb(color):
    return [int(color[k : k + 2], 16) / 255 for k in (1, 3, 5)]


def test_blocks_that_a_rank_has_are_filled():
    ax = axes_of(PARTIAL, 0)
    assert [count(ax, f"{name} of rank 0") for name in "XWY"] == [2, 2, 0]
    assert {"X[I, J_t]", "W[J_t, K]", "Y", "rank 0", "rank 1", "01"} <= set(texts(ax))
    assert framed(ax) == 0


def test_a_block_product_frames_three_blocks_on_each_rank():
    ax = axes_of(PARTIAL, 1)
    assert framed(ax) == 2 * 3
    assert [count(ax, f"Y of rank {rank}") for rank in (0, 1)] == [1, 1]
    assert {"j=0", "j=1"} <= set(texts(ax))  # of two terms each rank has one
    assert all(not patch.get_gid() or " of rank " in patch.get_gid() for patch in ax.patches)


def test_a_collective_is_a_bar_over_all_ranks():
    ax = axes_of(PARTIAL, 5)
    assert count(ax, "all_reduce") == 1 and "all-reduce" in texts(ax) and "Y[I, K]" in texts(ax)
    assert "j=0" not in texts(ax) and framed(ax) == 2 * 4
    gather = axes_of(GATHERED, 1)
    assert count(gather, "all_gather") == 1 and framed(gather) == 2 * 2  # the half of W that came


def test_a_slice_sends_nothing():
    steps = product_steps(product_case("X[I, J_t]", "W[J, K]", name="Y"), 2, way="slice W")
    assert product_frames(steps)[1][1] == "slice: now W[J_t, K]"
    assert count(axes_of(steps, 1), "slice") == 0


def test_of_many_terms_their_number_is_told():
    steps = product_steps(product_case("X[I, J]", "W[J, K_t]", name="Y"), 3)
    assert "2 of 3" in texts(axes_of(steps, 2))


def test_captions_and_size():
    captions = product_frames(PARTIAL)[1]
    assert captions[0] == "before" and captions[1] == "a block product on each rank, 1 of 4"
    assert captions[-1] == "all-reduce: now Y[I, K]"
    width, height = frame_size(PARTIAL, 3.0)
    assert width == 3.0 and 1.0 < height < 3.0


def test_all_steps_in_one_figure():
    fig = product_figure(PARTIAL, "t", "l")
    assert len(fig.axes) == 6
    assert [ax.get_title(loc="left")[:2] for ax in fig.axes] == ["0.", "1.", "2.", "3.", "4.", "5."]
    with pytest.raises(ValueError, match="a step or more"):
        product_figure((), "t")


def test_words():
    words = product_words(PARTIAL)
    assert words.startswith("2 ranks, matrices of 2 x 2 blocks, X[I, J_t] and W[J_t, K]. Step 1: rank 0 X(0,0) W(0,0)")
    assert words.endswith(
        "Step 5: all-reduce: now Y[I, K]. At the end each rank has 4 of 4 blocks of Y, summed up: Y[I, K]."
    )
    waiting = product_steps(product_case("X[I, J_t]", "W[J_t, K]", name="Y"), 2, way="no reduction yet")
    assert product_words(waiting).endswith("4 of 4 blocks of Y, each a partial sum: Y[I, K] {U_t}.")
    assert "Step 1: all-gather: now W[J, K]." in product_words(GATHERED)
