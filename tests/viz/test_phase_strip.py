from dataclasses import replace

from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from dtlearn.runtime.record.event import Span
from dtlearn.runtime.record.record import Record
from dtlearn.viz.phase_strip import PHASES_TOP, phase_colors, time_range
from dtlearn.viz.ranks.timeline import timeline
from tests.viz.records import MS, all_reduce_run

SPANS = (
    Span(0, "sync", 0, 8 * MS),
    Span(0, "backward", 1 * MS, 4 * MS),
    Span(1, "forward", 2 * MS, None),
)
RUN = replace(all_reduce_run(), spans=SPANS)


def strips(ax, rank):
    """Strips of a rank as (start, end, colour), as they are painted."""
    found = [p for p in ax.patches if isinstance(p, Rectangle) and abs(p.get_y() - rank - PHASES_TOP) < 1e-9]
    return [(round(p.get_x(), 3), round(p.get_x() + p.get_width(), 3), to_hex(p.get_facecolor())) for p in found]


def test_a_strip_shows_each_phase_and_inner_ones_lie_on_outer_ones():
    ax = timeline(RUN).axes[0]
    colors = phase_colors(RUN)
    assert strips(ax, 0) == [(0, 8, colors["sync"]), (1, 4, colors["backward"])]
    assert strips(ax, 1) == [(2, 8, colors["forward"])]  # it never ended
    assert strips(ax, 2) == []


def test_calls_make_room_for_the_strip():
    ax = timeline(RUN).axes[0]
    bars = [p for p in ax.patches if isinstance(p, Rectangle) and p.get_zorder() > 0]
    calls = [p for p in bars if abs(p.get_y() % 1 - PHASES_TOP) > 1e-9]
    assert calls and all((p.get_y() + p.get_height() + 0.5) % 1 <= 0.5 + PHASES_TOP + 1e-9 for p in calls)


def test_the_legend_explains_the_phases_and_the_axis_its_origin():
    figure = timeline(RUN)
    words = [t.get_text() for legend in figure.legends for t in legend.get_texts()]
    assert words[-3:] == ["forward", "backward", "sync"]
    assert figure.axes[0].get_xlabel() == "time since the record began (ms)"


def test_every_phase_has_a_colour_of_its_own():
    names = ["forward", "backward", "step", "sync", "load", "save"]
    colors = phase_colors(Record(1, spans=tuple(Span(0, name, 0, 1) for name in names)))
    assert set(colors) == set(names) and len(set(colors.values())) == 6


def test_the_time_range_holds_calls_and_phases():
    assert time_range(RUN) == (0, 8 * MS)
    assert time_range(all_reduce_run()) == (1 * MS, 6 * MS)
    assert time_range(Record(1)) == (0, 0)
