from dataclasses import replace

import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from dtlearn.runtime.record.event import Span
from dtlearn.runtime.record.record import merge
from dtlearn.viz.data_parallel.bucket_timeline import bucket_timeline
from dtlearn.viz.style import ALARM, op_style
from tests.viz.records import MS, event

GREEN = op_style("all_reduce").color.lower()


def span(rank, phase, start, end):
    return Span(rank, phase, start * MS, end * MS)


def bucket(rank, seq, start, arrived, wait, end):
    """An asynchronous all-reduce in backward; times in ms."""
    plain = event(rank, seq, "all_reduce", start, end)
    return replace(plain, asynchronous=True, phase="backward", arrived_ns=arrived * MS, wait_ns=wait * MS)


SPANS = [
    s for r in range(2) for s in (span(r, "forward", 0, 20), span(r, "backward", 20, 90), span(r, "step", 90, 100))
]
# Rank 1 launches both a little later. The first arrives while backward goes on, the second 20 ms after its end.
OURS = [[bucket(r, 0, 30 + 5 * r, 50, 65, 65), bucket(r, 1, 45 + 5 * r, 85, 65, 85)] for r in range(2)]


def ours(label="gloo on CPU, emulated link: 1 Gb/s, 50 us"):
    return merge(2, OURS, label, SPANS)


def naive():
    calls = [[event(r, n, "all_reduce", 60 + 10 * n, 70 + 10 * n) for n in range(3)] for r in range(2)]
    return merge(2, calls, "gloo on CPU", SPANS)


def bars(ax, color, rank=0):
    """Bars of that colour in a rank's lane, as (start, end) in ms."""
    return [
        (round(p.get_x(), 2), round(p.get_x() + p.get_width(), 2))
        for p in ax.patches
        if isinstance(p, Rectangle)
        and p.get_zorder() > 0
        and p.get_facecolor()[3]
        and to_hex(p.get_facecolor()) == color
        and rank - 0.5 < p.get_y() < rank + 0.5
    ]


def underlined(ax, rank=0):
    lines = [line for line in ax.lines if line.get_gid() == "exposed" and rank < line.get_ydata()[0] < rank + 0.5]
    assert all(line.get_color() == ALARM for line in lines)
    return [tuple(round(x, 2) for x in line.get_xdata()) for line in lines]


def words(ax):
    return [t.get_text() for t in ax.texts]


def test_buckets_go_from_when_all_have_launched_until_they_arrive():
    ax = bucket_timeline(ours()).axes[0]
    assert bars(ax, GREEN) == bars(ax, GREEN, rank=1) == [(35, 50), (50, 85)]
    assert {"0", "1"} <= set(words(ax))


def test_without_a_link_calls_under_way_at_once_have_rows_of_their_own():
    fig = bucket_timeline(ours("gloo on CPU"))
    found = [p for p in fig.axes[0].patches if to_hex(p.get_facecolor()) == GREEN and p.get_y() < 0.5]
    assert [(round(p.get_x()), round(p.get_x() + p.get_width())) for p in found] == [(35, 50), (50, 85)]
    later = merge(2, [[e[0], replace(e[1], start_ns=40 * MS)] for e in OURS], "gloo on CPU", SPANS)
    found = [
        p for p in bucket_timeline(later).axes[0].patches if to_hex(p.get_facecolor()) == GREEN and p.get_y() < 0.5
    ]
    assert [(round(p.get_x()), round(p.get_x() + p.get_width())) for p in found] == [(35, 50), (40, 85)]
    assert found[0].get_y() + found[0].get_height() <= found[1].get_y() + 1e-9


def test_the_exposed_part_is_underlined_and_its_duration_written():
    ax = bucket_timeline(ours()).axes[0]
    assert underlined(ax) == [(65, 85)]
    assert words(ax).count("20 ms exposed") == 2
    naively = bucket_timeline(naive()).axes[0]
    assert underlined(naively) == [(60, 90)]
    assert "3 calls, 30 ms exposed" in words(naively)
    assert not any(p.get_hatch() for a in (ax, naively) for p in a.patches), "no hatch over the calls' own colours"


def test_a_phase_that_takes_longer_than_in_the_first_record_says_how_much():
    assert {"forward 20 ms", "backward 50 ms"} <= set(words(bucket_timeline(ours()).axes[0]))
    slower = [replace(s, end_ns=s.end_ns + 35 * MS) if s.phase == "backward" else s for s in SPANS]
    slow = merge(2, OURS, "", slower)
    first, second = bucket_timeline({"naive": naive(), "slow": slow}).axes
    assert "backward 40 ms" in words(first)
    assert "backward 85 ms, 2.1x as long" in words(second)


def test_a_rank_that_waits_computes_nothing():
    ax = bucket_timeline(ours()).axes[0]
    backward = next(to_hex(p.get_facecolor()) for p in ax.patches if abs(p.get_x() - 20) < 1e-6)
    assert bars(ax, backward) == [(20, 65), (85, 90)]


def test_a_wait_that_is_none_leaves_no_mark_but_its_duration_is_told():
    calls = [[bucket(r, 0, 30, 50, 65, 65)] for r in range(2)]
    calls = [[replace(e, end_ns=e.wait_ns + 3000) for e in rank] for rank in calls]
    ax = bucket_timeline(merge(2, calls, "", SPANS)).axes[0]
    assert underlined(ax) == []
    assert "3 us exposed" in words(ax)


def test_launches_are_marked():
    fig = bucket_timeline(ours())
    marks = [line for line in fig.axes[0].lines if line.get_marker() == "v"]
    assert [list(line.get_xdata()) for line in marks] == [[30, 45], [35, 50]]
    legend = [t.get_text() for t in fig.legends[0].get_texts()]
    assert legend == ["forward", "backward", "step", "all_reduce", "launched", "exposed: the rank only waits for it"]
    assert "launched" not in [t.get_text() for t in bucket_timeline(naive()).legends[0].get_texts()]


def test_several_records_share_the_time_axis():
    fig = bucket_timeline({"naive": naive(), "ours": ours()}, "A title")
    first, second = fig.axes
    assert first.get_xlim() == second.get_xlim()
    assert [first.get_ylabel(), second.get_ylabel()] == ["naive", "ours"]
    assert first.get_title(loc="left") == "A title"
    assert second.get_xlabel() == "time since the step began (ms)"
    assert "emulated link" in words(first)
    assert [t.get_text() for t in second.get_yticklabels()] == ["rank 0", "rank 1"]


def test_some_of_the_ranks():
    ax = bucket_timeline(ours(), ranks=1).axes[0]
    assert len(ax.get_yticks()) == 1 and bars(ax, GREEN, rank=1) == []


def test_a_record_without_a_step_is_refused():
    with pytest.raises(ValueError, match="no record"):
        bucket_timeline({})
    with pytest.raises(ValueError, match="the record of 'ours' holds no training step"):
        bucket_timeline({"ours": merge(1, [[event(0, 0, "all_reduce", 1, 2)]])})
