"""The simulated job: its life adds up, and its goodput is that of the model."""

import dataclasses
import itertools

import pytest

from dtlearn.production.goodput.intervals import daly_interval
from dtlearn.production.goodput.simulate import JobTimes, goodput_by_interval, simulate

JOB = JobTimes(work=100 * 3600.0, save=300.0, restart=600.0, mtbf=6 * 3600.0)


def test_the_same_seed_gives_the_same_life_and_another_one_another():
    assert simulate(JOB, 3600.0, 1) == simulate(JOB, 3600.0, 1) != simulate(JOB, 3600.0, 2)


@pytest.mark.parametrize("seed", range(5))
def test_all_work_is_done_once_and_each_failure_loses_less_than_an_interval(seed):
    life = simulate(JOB, 3600.0, seed)
    assert life.seconds("training") == pytest.approx(JOB.work)
    assert sum(span.kind == "save" for span in life.spans) == 100
    assert all(span.seconds < 3600.0 + JOB.save for span in life.spans if span.kind == "lost")
    assert life.failures == sum(span.kind == "restart" for span in life.spans)


def test_a_job_that_never_fails_loses_its_saves_only():
    life = simulate(JobTimes(1000.0, 10.0, 60.0, 1e12), 300.0, 0)
    assert [span.kind for span in life.spans] == ["training", "save"] * 4
    assert life.spans[-2].seconds == pytest.approx(100.0)  # what was left
    assert life.goodput == pytest.approx(1000 / 1040)


def test_a_restart_can_fail_too():
    life = simulate(JobTimes(2000.0, 10.0, 200.0, 150.0), 100.0, 3)
    kinds = [span.kind for span in life.spans]
    assert ("restart", "restart") in itertools.pairwise(kinds)


def test_the_mean_of_many_lives_is_daly_s_model_and_best_near_his_interval():
    intervals = [900.0, daly_interval(JOB.save, JOB.mtbf), 14400.0]
    long = dataclasses.replace(JOB, work=2400 * 3600.0)  # 400 failures in each of 20 lives
    rows = goodput_by_interval(long, intervals)
    for row in rows:
        assert row.simulated == pytest.approx(row.expected, rel=0.015)
    assert max(rows, key=lambda row: row.simulated) is rows[1]


@pytest.mark.parametrize("times", [(0, 1, 1, 1), (1, 0, 1, 1), (1, 1, -1, 1), (1, 1, 1, 0)])
def test_a_job_without_time_is_refused(times):
    with pytest.raises(ValueError, match="positive times"):
        JobTimes(*times)
    with pytest.raises(ValueError, match="positive number of seconds"):
        simulate(JOB, 0.0, 0)
