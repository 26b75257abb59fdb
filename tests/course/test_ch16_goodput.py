"""The check of ch16.interval against the package's simulation: what random failures leave of a job's time."""

from statistics import mean
from typing import Any

import pytest

from dtlearn.checks.ch16_production import interval
from dtlearn.grading import Case
from dtlearn.production.goodput import JobTimes, expected_goodput, simulate

CASES = [name for name, params in interval.CASES.items() if "refused" not in params]


def best_of(name: str) -> tuple[dict[str, Any], int, float]:
    """The times of a case, the number of steps that its check expects, and the goodput."""
    case = Case(name, 1, 1, interval.CASES[name])
    given = interval.inputs(case)
    ((best, goodput),) = interval.expected(case, given)
    return {key: given[0][key] for key in ("step", "save", "restart", "mtbf")}, best, goodput


def simulated(times: dict[str, Any], steps: int) -> float:
    """Mean goodput of eight jobs of 250 stretches each, with so many steps in a stretch."""
    step, *others = times.values()
    job = JobTimes(250 * steps * step, *others)
    return mean(simulate(job, steps * step, seed).goodput for seed in range(8))


@pytest.mark.parametrize("name", CASES)
def test_the_expected_goodput_is_what_random_failures_leave(name):
    times, best, goodput = best_of(name)
    assert simulated(times, best) == pytest.approx(goodput, rel=0.08)


def test_young_s_interval_leaves_less_where_a_save_is_not_short():
    times, best, _ = best_of("a save of twice mtbf")
    assert simulated(times, 200) < 0.85 * simulated(times, best)


@pytest.mark.parametrize("name", CASES)
def test_a_case_has_one_best_number(name):
    """Its neighbours are worse by more than rounding, whichever way they are computed."""
    times, best, goodput = best_of(name)
    step, *others = times.values()
    assert expected_goodput(best * step, *others) == pytest.approx(goodput, rel=1e-12)
    for n in (best - 1, best + 1):
        assert n == 0 or expected_goodput(n * step, *others) < goodput * (1 - 1e-10)
