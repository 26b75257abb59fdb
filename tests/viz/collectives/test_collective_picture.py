from dataclasses import replace
from itertools import pairwise

import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from dtlearn.viz.collectives.collective_picture import (
    collective_figure,
    collective_frames,
    collective_words,
    how_to_read,
)
from dtlearn.viz.collectives.collective_steps import CollectiveSteps, StepMessage
from dtlearn.viz.style import INK, LANE, new_figure


def ring_of(num_ranks, step_count):
    """The first steps of a ring: chunk (r - k) goes from rank r to r + 1."""
    N = num_ranks
    everyone = tuple(range(N))
    messages = tuple(
        tuple(StepMessage(r, (r + 1) % N, 8, (r - k) % N, (r - k) % N + 1) for r in everyone) for k in range(step_count)
    )
    states = [tuple((frozenset({r}),) * N for r in everyone)]
    for step in messages:
        new = [list(row) for row in states[-1]]
        for m in step:
            new[m.dst][m.first] |= states[-1][m.src][m.first]
        states.append(tuple(map(tuple, new)))
    return CollectiveSteps(everyone, tuple(range(0, 8 * N + 1, 8)), messages, tuple(states), "gloo on CPU", 0)


def drawn(steps, number):
    """The axes with that state."""
    ax = new_figure(2).add_subplot()
    collective_frames(steps)[0][number](ax)
    return ax


def framed(ax):
    """(chunk, row) of the cells with a black frame."""
    boxes = [p for p in ax.patches if isinstance(p, Rectangle) and not p.get_fill()]
    return {(int(p.get_x()), int(p.get_y())) for p in boxes}


def test_each_step_has_its_panel_and_its_messages_frames():
    steps = ring_of(4, 2)
    figure = collective_figure(steps, "Two steps")
    titles = [ax.get_title(loc="left") for ax in figure.axes]
    assert titles == ["0. before", "1. 4 messages of 8 bytes", "2. 4 messages of 8 bytes"]
    assert framed(figure.axes[0]) == set()
    assert framed(figure.axes[1]) == {(0, 1), (1, 2), (2, 3), (3, 0)}
    assert framed(figure.axes[2]) == {(3, 1), (0, 2), (1, 3), (2, 0)}
    assert "gloo on CPU" in figure._supxlabel.get_text()


def test_a_cell_has_a_stripe_for_every_rank_whose_data_is_in_it():
    steps = ring_of(4, 1)
    boxes = [p for p in drawn(steps, 1).patches if isinstance(p, Rectangle) and p.get_fill()]
    colors = {to_hex(p.get_facecolor()) for p in boxes if (int(p.get_x()), int(p.get_y())) == (0, 1)}
    assert colors == {LANE, "#0072b2", "#e69f00"}  # the ground, ranks 0 and 1


def test_many_ranks_are_counted():
    steps = ring_of(8, 1)
    texts = [t.get_text() for t in drawn(steps, 1).texts]
    assert texts.count("1") == 56 and texts.count("2") == 8
    assert "Number in a cell" in how_to_read(steps) and "Stripe in a cell" in how_to_read(ring_of(4, 1))


def test_arrows_of_the_same_chunks_stand_side_by_side():
    tree = CollectiveSteps(
        (0, 1, 2, 3), (0, 8), ((StepMessage(0, 2, 8, 0, 1), StepMessage(1, 3, 8, 0, 1)),), ((), ()), "", 0
    )
    states = tuple(tuple((frozenset({r}),) for r in range(4)) for _ in range(2))
    ax = drawn(replace(tree, states=states), 1)
    tails = sorted(line.get_xdata()[0] for line in ax.lines if line.get_color() == INK)
    assert len(tails) == 2 and all(b - a > 0.15 for a, b in pairwise(tails))
    assert ax.get_xlabel() == "whole tensor" and max(tails) < 1


def test_a_whole_tensor_has_its_sum_as_text():
    states = (((frozenset({0}),), (frozenset({1}),)), ((frozenset({0, 1}),), (frozenset({1}),)))
    steps = CollectiveSteps((0, 1), (0, 8), ((StepMessage(1, 0, 8, 0, 1),),), states, "", 0)
    assert [t.get_text() for t in drawn(steps, 0).texts] == ["0", "1"]
    assert [t.get_text() for t in drawn(steps, 1).texts] == ["0+1", "1"]
    assert "the ranks whose tensors are summed in it (black: all)" in how_to_read(steps)
    assert "black" not in how_to_read(replace(steps, states=states[:1]))


def test_words_tell_every_message_and_the_end():
    words = collective_words(ring_of(3, 1))
    assert words == (
        "3 ranks, 3 chunks: 3 messages in 1 steps. Step 1: 0 to 1, chunk 0; 1 to 2, chunk 1; 2 to 0, chunk 2. "
        "At the end rank 0 holds: chunk 0 of 0, chunk 1 of 0, chunk 2 of 0+2. "
        "At the end rank 1 holds: chunk 0 of 0+1, chunk 1 of 1, chunk 2 of 1. "
        "At the end rank 2 holds: chunk 0 of 2, chunk 1 of 1+2, chunk 2 of 2."
    )
    assert "Step 6: 8 messages of 8 bytes." in collective_words(ring_of(8, 6))
    done = collective_words(ring_of(2, 2))
    assert done.endswith("At the end every chunk of every rank holds the data of all ranks.")
    assert "2 calls found no partner" in collective_words(replace(ring_of(2, 2), lost=2))


@pytest.mark.parametrize("num_chunks", [0, 2])
def test_messages_without_a_place_have_a_column_and_are_said(num_chunks):
    states = tuple(tuple((frozenset({r}),) * num_chunks for r in range(2)) for _ in range(2))
    steps = CollectiveSteps((0, 1), tuple(range(num_chunks + 1)), ((StepMessage(0, 1, 12),),), states, "", 0)
    ax = drawn(steps, 1)
    assert [t.get_text() for t in ax.get_xticklabels()][-1] == "?"
    assert framed(ax) == {(num_chunks, 1)}
    assert "not known" in how_to_read(steps) or "lay elsewhere" in how_to_read(steps)
    assert "0 to 1, 12 bytes" in collective_words(steps) and "is not known" in collective_words(steps)
