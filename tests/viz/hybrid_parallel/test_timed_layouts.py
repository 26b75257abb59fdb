"""Measured and predicted stand in one row, the fastest measured one on top; what ran out of memory says so."""

import pytest

from dtlearn.planner.score.bloom_topologies import EARLY, TIMED, plan_of_layout
from dtlearn.viz.hybrid_parallel.timed_layouts import OUT, timed_layouts, timed_words

PLANS = [plan_of_layout(timed, EARLY) for timed in TIMED]


def points(axes, marker):
    return {
        round(float(line.get_ydata()[0])): float(line.get_xdata()[0])
        for line in axes.lines
        if line.get_marker() == marker
    }


def test_each_layout_has_its_row():
    times, memory = timed_layouts(PLANS, TIMED[1], "Title").axes
    names = [text.get_text() for text in times.get_yticklabels()]
    assert len(names) == len(TIMED)
    assert [name for name in names if "calibrates" in name] == [f"{TIMED[1].name} (calibrates)"]
    measured, predicted = points(times, "o"), points(times, "D")
    assert list(measured.values()) == sorted(timed.seconds for timed in TIMED if timed.seconds)
    for place, name in enumerate(names):
        plan = next(plan for plan in PLANS if plan.timed.name == name.removesuffix(" (calibrates)"))
        assert predicted[place] == plan.seconds
        assert measured.get(place) == plan.timed.seconds
        assert points(memory, "D")[place] == plan.gigabytes


def test_out_of_memory_is_said():
    times, memory = timed_layouts(PLANS, TIMED[1]).axes
    assert sum(text.get_text() == OUT for text in times.texts) == sum(timed.seconds is None for timed in TIMED)
    assert [text.get_text() for text in memory.texts] == ["86 GB"]


def test_words():
    words = timed_words(PLANS, TIMED[1])
    assert words.count("measured") == len(TIMED) + 1
    assert words.count(OUT) == 3 and f"{TIMED[1].name} calibrates" in words


def test_nothing_measured():
    with pytest.raises(ValueError, match="was measured"):
        timed_layouts([plan for plan in PLANS if plan.timed.seconds is None], TIMED[1])
