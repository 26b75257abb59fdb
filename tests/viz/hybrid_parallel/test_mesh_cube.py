from itertools import combinations

import pytest
from matplotlib.colors import to_hex

from dtlearn.hybrid_parallel.layout import MeshLayout
from dtlearn.viz.hybrid_parallel.mesh_cube import mesh_cube, mesh_words, places
from dtlearn.viz.style import rank_color
from tests.viz.hybrid_parallel.boxes import cut_off, overlapping

CUBE = MeshLayout(tp=2, pp=2, dp=2)


def circles(ax):
    """Colour of each rank's circle, in the order of the numbers on them."""
    marks = [line for line in ax.lines if line.get_marker() == "o"]
    at = {tuple(line.get_xydata()[0]): to_hex(line.get_markerfacecolor()) for line in marks}
    numbers = {t.get_position(): int(t.get_text()) for t in ax.texts if t.get_text().isdigit()}
    return {numbers[place]: color for place, color in at.items()}


def group_lines(ax, spots):
    """Pairs of ranks that a group's line joins."""
    by_place = {tuple(spot): rank for rank, spot in enumerate(spots)}
    lines = [line for line in ax.lines if line.get_gid() == "group"]
    return {tuple(sorted(by_place[tuple(end)] for end in line.get_xydata())) for line in lines}


def test_ranks_stand_where_their_coordinates_put_them():
    spots = places(CUBE)
    for rank, axis in ((0, "tp"), (4, "tp"), (2, "tp")):
        ahead = spots[CUBE.neighbour(rank, axis)]
        assert (ahead.x - spots[rank].x, ahead.y - spots[rank].y) == pytest.approx((1, 0))
    assert spots[2].x > spots[0].x and spots[2].y > spots[0].y, "pp goes into the depth"
    assert spots[4].x == spots[0].x and spots[4].y > spots[2].y, "dp goes up, above the plane below"


def test_a_cube_alone_has_all_ranks_in_their_colours_and_names_its_axes():
    (ax,) = mesh_cube(CUBE).axes
    assert circles(ax) == {rank: to_hex(rank_color(rank)) for rank in range(8)}
    assert {t.get_text() for t in ax.texts} >= {"tp", "pp", "dp"}
    assert not group_lines(ax, places(CUBE))


def test_a_panel_for_each_axis_joins_the_ranks_of_its_groups_in_one_colour():
    fig = mesh_cube(CUBE, ["tp", "pp", "dp"])
    assert [ax.get_title() for ax in fig.axes] == ["tp: 4 groups of 2", "pp: 4 groups of 2", "dp: 4 groups of 2"]
    for ax, axis in zip(fig.axes, ("tp", "pp", "dp"), strict=True):
        groups = CUBE.groups(axis)
        assert group_lines(ax, places(CUBE)) == set(groups)
        assert circles(ax) == {rank: to_hex(rank_color(n)) for n, ranks in enumerate(groups) for rank in ranks}
    assert "(0, 4), (1, 5)\n(2, 6), (3, 7)" in [t.get_text() for t in fig.axes[2].texts]


def test_another_order_of_the_axes_is_another_numbering():
    layout = MeshLayout(tp=2, pp=2, dp=2, order=("dp", "tp", "pp", "cp", "ep"))
    (ax,) = mesh_cube(layout, ["tp"]).axes
    assert group_lines(ax, places(layout)) == {(0, 2), (1, 3), (4, 6), (5, 7)}


def test_a_group_over_two_axes_has_a_face_and_lines_along_both():
    layout = MeshLayout(tp=4, pp=4, dp=2)
    (ax,) = mesh_cube(layout, [("tp", "pp")]).axes
    spots = places(layout)
    assert len(ax.patches) == 2 and len(group_lines(ax, spots)) == 2 * 2 * 4 * 3
    corners = {tuple(xy) for xy in ax.patches[0].get_xy().tolist()}
    assert corners == {tuple(spots[rank]) for rank in (0, 3, 12, 15)}


@pytest.mark.parametrize("layout", [CUBE, MeshLayout(tp=4, pp=4, dp=2), MeshLayout(tp=2, pp=3, dp=2)])
def test_no_rank_and_no_label_lies_on_another(layout):
    spots = places(layout)
    assert all(abs(a.x - b.x) + abs(a.y - b.y) > 0.4 for a, b in combinations(spots, 2))
    for fig in (mesh_cube(layout), mesh_cube(layout, ["tp", "pp", ("tp", "pp")])):
        texts = [text for ax in fig.axes for text in (*ax.texts, ax.title)]
        assert not overlapping(fig, texts) and not cut_off(fig, texts)


def test_words():
    words = mesh_words(CUBE, ["tp", ("tp", "pp")])
    assert "along tp: (0, 1), (2, 3), (4, 5), (6, 7)." in words and "tp and pp: (0, 1, 2, 3), (4, 5, 6, 7)." in words


def test_what_is_no_cube_is_refused():
    with pytest.raises(ValueError, match="three axes and 32 ranks at most; tp2 cp2 pp2 dp2 has 4 axes"):
        mesh_cube(MeshLayout(tp=2, pp=2, dp=2, cp=2))
    with pytest.raises(ValueError, match="64 ranks"):
        mesh_cube(MeshLayout(tp=8, dp=8))
    with pytest.raises(ValueError, match="an axis is one of tp"):
        mesh_cube(CUBE, ["model"])
