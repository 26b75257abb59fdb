"""One row of BLOOM's tables calibrates the planner; it has to say of the others which fit, and which are fast."""

import pytest

from dtlearn.planner.run import run_faults
from dtlearn.planner.score.bloom_topologies import (
    EARLY,
    FINAL,
    TIMED,
    TIMED_MODEL,
    calibrated,
    plan_of_layout,
    run_of_layout,
)
from dtlearn.planner.step import planned_step

GUIDE = TIMED[1]  # tp 8 x pp 6 x dp 8
SOFTWARE = calibrated(run_of_layout(GUIDE), GUIDE.seconds)
PLANS = [plan_of_layout(timed, SOFTWARE) for timed in TIMED]


def test_the_rows_are_layouts_of_the_machine():
    assert len({timed.name for timed in TIMED}) == len(TIMED)
    for timed in TIMED:
        assert timed.tp * timed.pp * timed.dp == 384
        assert not run_faults(run_of_layout(timed)), timed.name
    assert TIMED_MODEL.num_parameters == pytest.approx(181e9, rel=0.01)


def test_the_guide_comes_out_as_measured():
    assert plan_of_layout(GUIDE, SOFTWARE).seconds == pytest.approx(GUIDE.seconds, rel=1e-3)


def test_large_microbatches_are_met_within_5_percent():
    """With two sequences on tp 4, and four on tp 8: products are large, and what a kernel's launch costs is hidden."""
    large = [plan for plan in PLANS if plan.timed.seconds and plan.timed.microbatch * 8 >= 4 * plan.timed.tp]
    assert len(large) == 11
    for plan in large:
        if plan.timed.pp < 24:
            assert plan.seconds == pytest.approx(plan.timed.seconds, rel=0.05), plan.timed.name


def test_the_layout_that_they_chose_is_among_the_three_fastest_that_ran():
    fast = sorted((plan for plan in PLANS if plan.timed.seconds), key=lambda plan: plan.seconds)
    chosen = next(plan for plan in PLANS if plan.timed[:4] == (4, 12, 8, 2))
    assert chosen.timed.seconds == min(timed.seconds for timed in TIMED if timed.seconds)
    assert fast.index(chosen) < 3


def test_what_ran_fits():
    assert all(plan.fits for plan in PLANS if plan.timed.seconds)
    assert sum(not plan.fits for plan in PLANS if not plan.timed.seconds) >= 2


def test_the_final_model():
    assert plan_of_layout(FINAL, SOFTWARE, final=True).seconds == pytest.approx(FINAL.seconds, rel=0.05)


def test_out_of_reach():
    run = run_of_layout(GUIDE)
    with pytest.raises(ValueError, match="out of reach"):
        calibrated(run, 1.0)
    assert calibrated(run, planned_step(run).total).efficiency == pytest.approx(EARLY.efficiency, rel=1e-3)
