from dataclasses import replace
from types import SimpleNamespace

import pytest
from matplotlib.patches import Rectangle

from dtlearn.viz.zero.unit_timeline import unit_timeline
from tests.viz.zero.records import MS, call, unit_run


def test_units_are_named_and_what_is_exposed_and_held_is_said():
    fig = unit_timeline({"no prefetch": unit_run()}, "t")
    ax = fig.axes[0]
    words = [text.get_text() for text in ax.texts]
    assert words.count("u") == 5, "two gathers, one reduction, two passes"
    assert "12 ms exposed" in words and "at most 3.00 MB" in words
    waits = [tuple(line.get_xdata()) for line in ax.lines if line.get_gid() == "exposed"]
    assert waits == [(0, 4), (6, 10), (12, 16)]
    assert "emulated link" in words
    assert ax.get_ylabel() == "no prefetch"


def test_several_runs_share_the_axis_and_the_scale_of_bytes():
    run = unit_run()
    fig = unit_timeline({"one": run, "twice the bytes": replace(run, sizes={"u": 6_000_000})})
    first, second = fig.axes
    assert first.get_xlim() == second.get_xlim()
    tops = [ax.collections[0].get_paths()[0].vertices[:, 1].min() for ax in (first, second)]
    assert tops[0] > tops[1], "down is positive: fewer bytes, a lower hill"


def test_units_can_have_other_names():
    words = [text.get_text() for text in unit_timeline({"a": replace(unit_run(), names={"u": "2"})}).axes[0].texts]
    assert words.count("2") == 5 and "u" not in words


def test_a_unit_without_weights_is_not_drawn():
    run = unit_run()
    root = [
        SimpleNamespace(ns=0, unit="root", what="unshard"),
        SimpleNamespace(ns=0, unit="root", what="wait_for_unshard"),
    ]
    words = [text.get_text() for text in unit_timeline({"a": replace(run, events=[*root, *run.events])}).axes[0].texts]
    assert "root" not in words and words.count("u") == 5


def test_bad_input_is_refused():
    run = unit_run()
    with pytest.raises(ValueError, match="no run to draw"):
        unit_timeline({})
    with pytest.raises(ValueError, match="'a' holds no training step"):
        unit_timeline({"a": replace(run, record=replace(run.record, spans=()))})
    fewer = [event for event in run.events if event.ns != 6 * MS]
    with pytest.raises(ValueError, match="'a': 2 calls of all_gather, and 1 units that unshard"):
        unit_timeline({"a": replace(run, events=fewer)})


def test_a_gather_beside_a_reduction_whose_arrival_is_told_late_is_seen_as_wide_as_it_was():
    events = [*unit_run().events, *(SimpleNamespace(ns=t * MS, unit="u", what="unshard") for t in (13,))]
    calls = [*unit_run().record.events, call(3, "all_gather_into_tensor", 13, 15.5, 15.5)]
    run = replace(unit_run(), record=replace(unit_run().record, events=tuple(calls)), events=events)
    boxes = [patch for patch in unit_timeline({"a": run}).axes[0].patches if isinstance(patch, Rectangle)]
    (gather,) = (box for box in boxes if (round(box.get_x(), 3), round(box.get_width(), 3)) == (13, 2.5))
    (reduction,) = (box for box in boxes if (round(box.get_x(), 3), round(box.get_width(), 3)) == (12, 4))
    assert gather.get_y() + gather.get_height() < reduction.get_y(), "in another row"
