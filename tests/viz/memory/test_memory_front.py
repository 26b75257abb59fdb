import itertools

import pytest

from dtlearn.viz.memory.memory_front import memory_front, on_front

POINTS = {"plain": (0.0, 40e6), "accumulation": (0.0, 25e6), "full": (1.0, 20e6), "every 2": (0.7, 30e6)}


def test_the_front_holds_what_no_other_point_beats():
    assert on_front(POINTS) == ["accumulation", "full"]
    assert on_front({"one": (0, 1), "the same": (0, 1)}) == ["one", "the same"]


def test_points_of_the_front_are_full_and_all_are_named():
    fig = memory_front(POINTS, cost="extra forward passes", title="t", label="l")
    (ax,) = fig.axes
    stairs, *points = ax.lines
    assert list(stairs.get_xdata()) == [0, 1] and list(stairs.get_ydata()) == [25, 20]
    full = {tuple(p.get_xydata()[0]) for p in points if len(p.get_xdata()) and p.get_markerfacecolor() != "white"}
    assert full == {(0, 25), (1, 20)}
    assert {text.get_text() for text in ax.texts} >= set(POINTS)
    assert ax.get_xlabel() == "extra forward passes" and "MB" in ax.get_ylabel()


def test_names_of_close_points_do_not_lie_on_each_other_or_on_points():
    ax = memory_front({"a very long name of a variant": (0.9, 20e6), "b": (0.95, 20.2e6), "c": (0.5, 1e6)}).axes[0]
    (name,) = [text for text in ax.texts if text.get_text().startswith("a very")]
    assert abs(name.xyann[1] - 20.2 / ax.get_ylim()[1]) > 0.05
    ax = memory_front({f"variant number {n}": (0.0, 20e6 + n) for n in range(5)}).axes[0]
    heights = sorted(text.xyann[1] for text in ax.texts if text.get_text().startswith("variant"))
    assert all(b - a > 0.05 for a, b in itertools.pairwise(heights))


def test_a_variant_that_pays_otherwise_is_drawn_and_not_compared():
    fig = memory_front({**POINTS, "offload": (0.0, 10e6)}, apart={"offload": "bytes over a link"})
    stairs, *points = fig.axes[0].lines
    assert list(stairs.get_ydata()) == [25, 20]
    assert [p.get_marker() for p in points].count("D") == 2, "the point and its legend entry"
    assert "costs something else: bytes over a link" in [text.get_text() for text in fig.legends[0].get_texts()]


def test_a_variant_apart_leaves_another_one_in_the_same_place_to_be_seen():
    fig = memory_front({**POINTS, "full, offload": POINTS["full"]}, apart={"full, offload": "bytes over a link"})
    there = [line for line in fig.axes[0].lines if line.get_xydata().tolist() == [[1.0, 20.0]]]
    circle, diamond = sorted(there, key=lambda line: line.get_zorder())
    assert (circle.get_marker(), diamond.get_marker()) == ("o", "D")
    assert diamond.get_markerfacecolor() == "none" and diamond.get_markersize() > circle.get_markersize()


@pytest.mark.parametrize(
    ("points", "apart"),
    [({}, {}), ({"a": (-0.1, 1)}, {}), ({"a": (1, -1)}, {}), ({"a": (1, 1)}, {"a": "x"}), (POINTS, {"b": "x"})],
)
def test_points_that_cannot_be_drawn_are_refused(points, apart):
    with pytest.raises(ValueError, match="a point or more"):
        memory_front(points, apart=apart)
