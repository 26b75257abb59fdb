import pytest
from matplotlib.patches import FancyArrowPatch, Rectangle

from dtlearn.viz.ranks.timeline import timeline
from tests.viz.records import all_reduce_run, chain_run, event, record


def bars(ax, rank):
    """Bars of a lane as (start, end, hollow) in ms, from the left; lane backgrounds left out."""
    found = [
        (round(p.get_x(), 3), round(p.get_x() + p.get_width(), 3), p.get_facecolor()[:3] == (1, 1, 1))
        for p in ax.patches
        if isinstance(p, Rectangle) and p.get_zorder() > 0 and rank - 0.4 < p.get_y() < rank + 0.4
    ]
    return sorted(found)


def words(fig):
    ax = fig.axes[0]
    legend = [t.get_text() for legend in fig.legends for t in legend.get_texts()]
    return [t.get_text() for t in ax.texts], legend


def test_waiting_is_hollow_and_moving_is_filled():
    ax = timeline(all_reduce_run()).axes[0]
    assert bars(ax, 0) == [(0, 3, True), (3, 5, False)]
    assert bars(ax, 1) == [(1.5, 3, True), (3, 5, False)]
    assert bars(ax, 2) == [(3, 5, False)]


def test_axes_name_ranks_and_time_and_run():
    fig = timeline(all_reduce_run(), "A title")
    ax = fig.axes[0]
    assert [t.get_text() for t in ax.get_yticklabels()] == ["rank 0", "rank 1", "rank 2"]
    assert ax.get_xlabel() == "time since the first call (ms)"
    assert ax.get_title(loc="left") == "A title"
    texts, legend = words(fig)
    assert "run: gloo on CPU" in texts
    assert legend == ["all_reduce", "waits for another rank", "no communication"]


def test_rank_0_is_on_top():
    bottom, top = timeline(all_reduce_run()).axes[0].get_ylim()
    assert bottom > top


def test_an_arrow_joins_a_send_and_its_recv():
    fig = timeline(chain_run())
    arrows = [p for p in fig.axes[0].patches if isinstance(p, FancyArrowPatch)]
    assert len(arrows) == 1
    (x0, y0), (x1, y1) = arrows[0]._posA_posB
    assert (x0, x1) == (5, 7)
    assert 0 < y0 < y1 < 1
    assert "message" in words(fig)[1]


def test_a_call_that_never_returned_is_open_and_named():
    run = record([event(0, 0, "recv", 0, None, peer=1)], [event(1, 0, "barrier", 2, 3), event(1, 1, "recv", 4, None)])
    fig = timeline(run)
    texts, legend = words(fig)
    assert "recv from 1 never returned" in texts and "recv never returned" in texts
    assert "never returned" in legend
    ax = fig.axes[0]
    outlines = [line for line in ax.lines if len(line.get_xdata()) == 4]
    assert len(outlines) == 2
    for line in outlines:
        xs = list(line.get_xdata())
        assert xs[0] == xs[3] == ax.get_xlim()[1], "the right end is open, at the edge of the axes"
        assert xs[1] == xs[2]
    assert max(ax.get_xticks()) <= 4, "no time is written where nothing was recorded"


def test_long_runs_are_drawn_in_seconds():
    assert timeline(record([event(0, 0, "barrier", 0, 20_000)])).axes[0].get_xlabel().endswith("(s)")


def test_a_rank_without_calls_has_a_lane():
    ax = timeline(record([event(0, 0, "barrier", 0, 1)], [])).axes[0]
    assert len(ax.get_yticks()) == 2 and bars(ax, 1) == []


def test_an_empty_record_is_refused():
    with pytest.raises(ValueError, match="record=True"):
        timeline(record([], []))


def test_calls_may_have_other_names_each_with_a_look_of_its_own():
    run = record([event(0, 0, "all_reduce", 0, 9), event(0, 1, "all_reduce", 10, 19, nbytes=4)])
    fig = timeline(run, names=lambda e: "loss" if e.nbytes == 4 else "gradients")
    texts, legend = words(fig)
    assert {"gradients", "loss"} < set(texts) and legend[:2] == ["gradients", "loss"]
    first, second = fig.legends[0].get_patches()[:2]
    assert first.get_facecolor() != second.get_facecolor() and second.get_hatch() == "...."


def test_parts_are_bracketed_above_the_lanes_and_ranks_that_ended_say_so():
    run = record([event(0, 0, "barrier", 1, None)], [event(1, 0, "send", 1, 4, peer=0)], [])
    fig = timeline(run, brackets={"step 1": (1 * 1_000_000, 3 * 1_000_000)}, ended=[1, 2])
    ax = fig.axes[0]
    line = next(line for line in ax.lines if max(line.get_ydata()) < 0)
    assert list(line.get_xdata()) == [0, 0, 2, 2]
    assert "step 1" in words(fig)[0]
    ended = [t.get_position() for t in ax.texts if t.get_text() == "ended"]
    assert [y for _, y in ended] == [1, 2] and ended[0][0] > 3 > ended[1][0]
