"""Scenarios under the course's own restart: each fault is noticed by whom it should be, and the job ends well."""

import math

import pytest

from dtlearn.production.faults.scenarios import SCENARIOS, run_scenario


@pytest.fixture(scope="module")
def unbroken() -> dict[int, float]:
    """The losses of the job without a fault: it is planted in the last step, and nothing is left to change."""
    return run_scenario("flip_parameter", check=False, step=7).losses


def same(losses: dict[int, float], unbroken: dict[int, float]) -> bool:
    return losses == pytest.approx(unbroken, rel=1e-10)


@pytest.mark.parametrize(
    ("name", "worlds", "noticers"),
    [
        ("kill", (3, 3), {"launcher"}),
        ("lost_rank", (3, 2), {"launcher"}),
        ("watched_hang", (3, 3), {"progress", "flight recorder", "launcher"}),
        ("stop", (3, 3), {"heartbeat"}),
        ("skip", (3, 3), {"watch"}),
        ("memory", (3, 3), {"itself", "launcher"}),
        ("flip_parameter", (3, 2), {"check"}),
        ("flip_gradient", (3, 2), {"check"}),
        ("scale_gradient", (3, 2), {"check"}),
    ],
)
def test_a_fault_is_noticed_and_the_losses_are_those_of_the_unbroken_job(name, worlds, noticers, unbroken):
    story = run_scenario(name)
    assert story.error == "" and story.worlds == worlds
    assert noticers <= {d.noticer for d in story.detections}
    assert all(d.seconds >= 0 for d in story.detections)
    assert same(story.losses, unbroken)
    assert story.restart_seconds > 0
    if name == "scale_gradient":
        assert story.repeated_steps == 1  # the step before the check was made with a wrong gradient


def test_a_hang_ends_with_the_time_out_of_the_collective_and_the_flight_recorder_names_the_rank(unbroken):
    story = run_scenario("hang")
    assert {"progress", "flight recorder", "time-out"} <= {d.noticer for d in story.detections}
    assert not any(d.names_rank for d in story.detections if d.noticer in ("progress", "time-out"))
    assert story.missing == ("all_reduce #5 of group 1: ranks 0, 2 wait in it; rank 1 did not call it",)
    assert same(story.losses, unbroken)


def test_a_step_with_nan_is_left_out_on_all_ranks():
    story = run_scenario("nan")
    assert story.worlds == (3,) and set(story.losses) == set(range(8)) - {4}
    assert {e.rank for e in story.select("skipped")} == {0, 1, 2}
    assert [(d.noticer, d.names_rank) for d in story.detections] == [("check", True)]
    assert all(map(math.isfinite, story.losses.values()))


@pytest.mark.parametrize("name", ["nan", "flip_parameter", "flip_gradient", "scale_gradient"])
def test_wrong_numbers_that_nobody_looks_for_are_noticed_by_nobody(name, unbroken):
    story = run_scenario(name, check=False)
    assert story.error == "" and story.worlds == (3,) and story.detections == ()
    assert not same(story.losses, unbroken)


def test_a_check_may_be_another_than_the_scenario_s_and_equal_replicas_hide_a_wrong_gradient(unbroken):
    """The wrong gradient is summed with the others: all replicas become wrong alike."""
    story = run_scenario("flip_gradient", check="replicas")
    assert story.error == "" and story.worlds == (3,) and story.detections == ()
    assert not same(story.losses, unbroken)
    replayed = run_scenario("flip_gradient", check="replay")
    assert replayed.worlds == (3, 2) and same(replayed.losses, unbroken)
    assert [(d.noticer, d.names_rank) for d in replayed.detections if d.noticer == "check"] == [("check", True)]


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("flood", {}, "a scenario is one of kill"),
        ("kill", {"launcher": "mpirun"}, "a launcher one of run_ranks, torchrun"),
        ("kill", {"rank": 3}, "rank 3 of 3"),
        ("kill", {"step": 8}, "step 8 of 8"),
    ],
)
def test_a_scenario_that_cannot_be_is_refused(name, options, message):
    with pytest.raises(ValueError, match=message):
        run_scenario(name, **options)


def test_every_scenario_says_what_happens():
    assert all(scenario.says.endswith(".") for scenario in SCENARIOS.values())
