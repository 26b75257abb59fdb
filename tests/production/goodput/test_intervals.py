"""Young's and Daly's intervals, and the goodput that the model expects."""

import math

import pytest

from dtlearn.planner.goodput import goodput
from dtlearn.production.goodput.intervals import daly_interval, expected_goodput, young_interval

MINUTE, HOUR = 60.0, 3600.0


@pytest.mark.parametrize(("mtbf", "minutes"), [(24 * HOUR, 117), (6 * HOUR, 57), (15 * MINUTE, 9.1)])
def test_the_intervals_of_daly_s_figures(mtbf, minutes):
    """Captions of figures 3 to 5 of his paper: saves of 5 minutes."""
    found = daly_interval(5 * MINUTE, mtbf) / MINUTE
    assert round(found, 1 if minutes < 10 else 0) == minutes


def test_young_s_interval_is_the_planner_s():
    assert young_interval(60, 6 * HOUR) == pytest.approx(math.sqrt(2 * 60 * 6 * HOUR))
    assert goodput(1, 60.0, 600.0, 6.0).interval == young_interval(60, 6 * HOUR)


def test_a_save_that_is_longer_than_the_time_between_failures_is_made_once_in_that_time():
    assert daly_interval(300.0, 100.0) == 100.0


def test_a_save_that_is_longer_than_that_time_but_not_twice_as_long_is_still_by_the_formula():
    """delta = 3 M / 2: x = delta / 2M = 3 / 4, and sqrt(2 delta M) = M sqrt(3)."""
    mtbf = 100.0
    expected = mtbf * math.sqrt(3) * (1 + math.sqrt(0.75) / 3 + 0.75 / 9) - 1.5 * mtbf
    assert daly_interval(1.5 * mtbf, mtbf) == pytest.approx(expected) != mtbf
    assert daly_interval(2 * mtbf, mtbf) == mtbf


@pytest.mark.parametrize("mtbf", [15 * MINUTE, 6 * HOUR])
def test_the_model_is_best_at_daly_s_interval(mtbf):
    save, restart = 5 * MINUTE, 10 * MINUTE
    best = max(range(60, 14400, 6), key=lambda interval: expected_goodput(interval, save, restart, mtbf))
    assert daly_interval(save, mtbf) == pytest.approx(best, rel=0.01)


def test_goodput_falls_from_1_with_what_it_costs():
    assert expected_goodput(100.0, 1e-6, 0.0, 1e9) == pytest.approx(1, abs=1e-6)
    assert expected_goodput(100.0, 100.0, 0.0, 1e9) == pytest.approx(0.5, rel=1e-6)
    both = [expected_goodput(60.0, 5.0, 30.0, 600.0, failures_in_restart=f) for f in (True, False)]
    assert both[0] < both[1] < expected_goodput(60.0, 5.0, 0.0, 600.0)


@pytest.mark.parametrize("times", [(0.0, 1, 1, 1), (1, 0.0, 1, 1), (1, 1, -1.0, 1), (1, 1, 1, 0.0)])
def test_times_that_are_none_are_refused(times):
    with pytest.raises(ValueError, match="positive times"):
        expected_goodput(*times)
    with pytest.raises(ValueError, match="must be a number above 0"):
        daly_interval(0.0, 1.0)
