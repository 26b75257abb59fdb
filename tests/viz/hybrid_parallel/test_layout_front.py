from itertools import pairwise

import pytest

from dtlearn.planner import find_model, parse_cluster, planned_layouts
from dtlearn.viz.hybrid_parallel.layout_front import front_of, front_words, layout_front, named_on_front
from tests.viz.hybrid_parallel.boxes import cut_off, overlapping
from tests.viz.hybrid_parallel.plans import all_layouts, best_layouts

GIB = 2**30


def beats(one, other):
    times, sizes = (one.step.total, other.step.total), (one.memory.total, other.memory.total)
    return times[0] <= times[1] and sizes[0] <= sizes[1] and (times[0] < times[1] or sizes[0] < sizes[1])


def test_nothing_beats_the_front_and_all_else_is_beaten_or_equal():
    plans = [plan for plan in all_layouts() if plan.memory.fits]
    front = front_of(plans)
    assert not any(beats(plan, other) for plan in plans for other in front)
    places = {(plan.step.total, plan.memory.total) for plan in front}
    for plan in plans:
        assert (plan.step.total, plan.memory.total) in places or any(beats(other, plan) for other in front)
    assert front[0].run.axes == best_layouts()[0].run.axes


def test_every_layout_is_a_point_and_those_that_do_not_fit_are_open():
    ax = layout_front(all_layouts()).axes[0]
    points = [line for line in ax.lines if line.get_linestyle() == "None" and line.get_markersize() == 5]
    full, hollow = ([p for p in points if (p.get_markerfacecolor() != "none") == fits] for fits in (True, False))
    capacity = all_layouts()[0].memory.capacity / GIB
    assert sum(len(p.get_xdata()) for p in full) == sum(plan.memory.fits for plan in all_layouts())
    assert sum(len(p.get_xdata()) for p in points) == len(all_layouts())
    assert all(max(p.get_ydata()) <= capacity for p in full) and all(min(p.get_ydata()) > capacity for p in hollow)


def test_the_stairs_are_the_front_and_what_is_cut_off_is_counted():
    ax = layout_front(all_layouts()).axes[0]
    (stairs,) = [line for line in ax.lines if line.get_drawstyle() == "steps-post"]
    assert len(stairs.get_xdata()) == len(front_of([plan for plan in all_layouts() if plan.memory.fits]))
    (_, right), (_, top) = ax.get_xlim(), ax.get_ylim()
    beyond = sum(plan.step.total > right or plan.memory.total > top * GIB for plan in all_layouts())
    assert f"; {beyond} layouts beyond are not shown" in ax.get_xlabel()


@pytest.mark.parametrize(
    ("model", "cluster", "batch"),
    [("BLOOM 176B", "384xA100-80GB", 2048), ("Llama 3 405B", "16384xH100", 2048), ("mpt-7b", "16xA100-40GB", 128)],
)
def test_names_are_at_their_points_and_clear_of_each_other(model, cluster, batch):
    fig = layout_front(planned_layouts(find_model(model), parse_cluster(cluster), batch))
    names = fig.axes[0].texts[1:]  # the first is the label under the title
    assert len(names) >= 2 and not overlapping(fig, names) and not cut_off(fig, names)
    assert [name.get_fontweight() for name in names].count("bold") == 1


def test_a_name_needs_room_below_the_last_one():
    front = front_of([plan for plan in all_layouts() if plan.memory.fits])
    chosen = named_on_front(front, 1.5)
    assert chosen[0] is front[0] and len(chosen) < len(front)
    sizes = [plan.memory.total for plan in chosen]
    assert all(small * 1.5 <= large for large, small in pairwise(sizes))
    assert named_on_front(front, 1.0) == front


def test_when_nothing_fits_there_is_no_front():
    plans = [plan for plan in all_layouts() if not plan.memory.fits]
    fig = layout_front(plans)
    assert "no layout fits" in fig.axes[0].get_title(loc="left")
    assert "0 lie below" in front_words(plans)


def test_bad_input():
    with pytest.raises(ValueError, match="layouts on one kind of chip"):
        layout_front([])
