"""The job on real ranks: the same losses for any number of ranks, checks, and a death at a given time."""

import pytest

from dtlearn.production.faults.job import run_rank
from dtlearn.production.faults.plan import JobPlan
from dtlearn.production.faults.plants import Plant
from dtlearn.production.faults.story import read_events
from dtlearn.runtime.errors import RankError
from dtlearn.runtime.run import run_ranks


def run(plan: JobPlan, ranks: int) -> list[dict[int, float]]:
    return run_ranks(run_rank, ranks, plan, 0, device="cpu", init_group=False).values


def plan_in(folder, name: str, **options) -> JobPlan:
    (folder / name).mkdir()
    return JobPlan(str(folder / name), **{"step_seconds": 0.0, "group_timeout": 30.0, "steps": 5} | options)


def test_the_losses_do_not_depend_on_the_number_of_ranks(tmp_path):
    whole = run(plan_in(tmp_path, "1"), 1)[0]
    for ranks in (2, 3):
        for losses in run(plan_in(tmp_path, str(ranks)), ranks):
            assert losses == pytest.approx(whole, rel=1e-12)


def test_checks_of_numbers_that_are_right_change_nothing_and_accuse_nobody(tmp_path):
    plain = run(plan_in(tmp_path, "plain"), 3)
    for check in ("finite", "replicas", "replay"):
        assert run(plan_in(tmp_path, check, check=check), 3) == plain
        assert not [e for e in read_events(tmp_path / check, 0.0) if e.what == "noticed"]


def test_a_wrong_gradient_reaches_all_ranks_when_nobody_checks(tmp_path):
    plain = run(plan_in(tmp_path, "plain"), 2)[0]
    plant = Plant("scale_gradient", 1, 2)
    for losses in run(plan_in(tmp_path, "wrong", plant=plant), 2):
        assert {step: losses[step] for step in (0, 1)} == {step: plain[step] for step in (0, 1)}
        assert losses[4] != plain[4]


def test_what_is_saved_was_checked(tmp_path):
    plan = plan_in(
        tmp_path, "wrong", check="replay", check_every=100, save_every=3, plant=Plant("scale_gradient", 1, 1)
    )
    with pytest.raises(RankError, match="rank 1 computed wrong in step 2"):
        run(plan, 3)
    assert not list((tmp_path / "wrong").glob("step-*.pt"))


def test_a_rank_dies_when_it_is_to(tmp_path):
    plan = plan_in(tmp_path, "death", steps=400, step_seconds=0.01, save_every=400, deaths=((1, 0.2),))
    with pytest.raises(RankError, match="rank 1 was killed by signal 9"):
        run(plan, 2)
    events = read_events(tmp_path / "death", 0.0)
    fault, resumed = (next(e for e in events if e.what == what and e.rank == 1) for what in ("fault", "resumed"))
    assert fault.seconds - resumed.seconds >= 0.2
