import pytest
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from dtlearn.viz.network.placed_steps import (
    SLOW,
    circle,
    how_to_read_places,
    in_nodes,
    placed_figure,
    placed_frames,
)
from dtlearn.viz.style import new_figure
from tests.viz.collectives.test_collective_picture import ring_of


def drawn(steps, number, places):
    ax = new_figure(2).add_subplot()
    placed_frames(steps, places)[0][number](ax)
    return ax


def arrows(ax):
    return [p for p in ax.patches if isinstance(p, FancyArrowPatch)]


def test_ranks_stand_clockwise_with_rank_0_on_top():
    places = circle(4).at
    assert max(places, key=lambda at: at[1]) == places[0] and max(places) == places[1]
    assert not circle(4).nodes and not circle(4).crosses(0, 3)


def test_ranks_of_a_node_stand_below_each_other():
    places = in_nodes(6, 3)
    assert places.nodes == (range(3), range(3, 6))
    assert len({x for x, _ in places.at[:3]}) == 1 and places.at[0][1] == places.at[3][1]
    assert places.crosses(2, 3) and not places.crosses(0, 2)


def test_each_message_has_an_arrow_with_the_number_of_its_chunk():
    ax = drawn(ring_of(4, 2), 2, circle(4))
    assert len(arrows(ax)) == 4
    texts = [t.get_text() for t in ax.texts]
    assert texts.count("rank 0") == 1
    assert sorted(texts[-4:]) == ["0", "1", "2", "3"]
    assert arrows(drawn(ring_of(4, 2), 0, circle(4))) == []


def test_a_complete_chunk_is_marked():
    done = ring_of(4, 3)
    assert [t.get_text() for t in drawn(done, 3, circle(4)).texts].count("\u03a3") == 4
    assert "\u03a3" not in [t.get_text() for t in drawn(done, 2, circle(4)).texts]


def test_nodes_are_boxes_and_messages_between_them_are_dashed_in_their_own_colour():
    ax = drawn(ring_of(4, 1), 1, in_nodes(4, 2))
    assert sum(isinstance(p, FancyBboxPatch) for p in ax.patches) == 2
    slow = [a for a in arrows(ax) if a.get_linestyle() != "-"]
    assert len(slow) == 2 and len(arrows(ax)) == 4  # 1 to 2 and 3 to 0
    assert [t.get_color() for t in ax.texts].count(SLOW) == 2
    assert "dashed: between nodes" in how_to_read_places(in_nodes(4, 2))
    assert "dashed" not in how_to_read_places(circle(4))


def test_phases_have_names_and_steps_go_on_counting():
    figure = placed_figure(ring_of(4, 4), circle(4), "Ring", {"first": 3, "second": 1})
    titles = [ax.get_title() for ax in figure.axes]
    assert titles == [f"step {k}: 4 messages of 8 bytes" for k in (1, 2, 3, 4)]
    assert placed_frames(ring_of(4, 2), circle(4), {"a": 1, "b": 1})[1][1:] == [
        "a: 4 messages of 8 bytes",
        "b: 4 messages of 8 bytes",
    ]


def test_bad_input():
    with pytest.raises(ValueError, match="3 places for 4 ranks"):
        placed_figure(ring_of(4, 1), circle(3), "x")
    with pytest.raises(ValueError, match="the phases have 2 steps; the record has 1"):
        placed_figure(ring_of(4, 1), circle(4), "x", {"a": 2})
