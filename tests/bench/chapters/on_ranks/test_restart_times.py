"""The bench's part on restarts: what it reads from a story, and what it says."""

import pytest

from dtlearn.bench.chapters.on_ranks.restart_times import RestartTimes, measure_restarts, parts_of, table_of
from dtlearn.production.faults import SCENARIOS, FaultStory, StoryEvent, run_scenario

EVENTS = (
    StoryEvent(10.0, 1, 0, "fault", 4),
    StoryEvent(10.1, -1, 0, "noticed", by="launcher", about=1),
    StoryEvent(11.0, 0, 1, "joined"),
    StoryEvent(11.5, 1, 1, "joined"),
    StoryEvent(12.0, 0, 1, "step", 4, 0.5),
)
SECONDS = {
    "torchrun": {"noticed": (0.2, 0.2, 0.2), "in a group": (3.0, 4.0, 5.0), "training": (4.0, 5.0, 9.0)},
    "run_ranks": {"noticed": (0.02, 0.02, 0.02), "in a group": (0.5, 0.5, 0.5), "training": (1.0, 1.0, 1.0)},
}
SAME = {"torchrun": ({0: 1.0},) * 3, "run_ranks": ({0: 1.0},) * 3}


def test_times_are_counted_from_the_fault_and_a_group_is_there_with_its_last_rank():
    found = parts_of(FaultStory("kill", "torchrun", (1,), EVENTS, (2, 2)))
    assert found == pytest.approx({"noticed": 0.1, "in a group": 1.5, "training": 2.0})


def test_table():
    times = RestartTimes(2, SECONDS, SAME)
    assert times.times_own == 5.0 and times.equal
    lines = table_of(times)
    assert [line.split() for line in lines[1].splitlines()[2:]] == [
        ["torchrun", "200", "ms", "4", "s", "5", "s"],
        ["run_ranks", "20", "ms", "500", "ms", "1", "s"],
    ]
    assert lines[-1] == "The same losses in all rounds: yes."


def test_a_job_that_learned_something_else_is_said():
    times = RestartTimes(2, SECONDS, {**SAME, "torchrun": ({0: 1.0}, {0: 1.0}, {0: 1.5})})
    assert not times.equal and table_of(times)[-1].endswith("NO.")


def test_both_launchers_are_measured_and_a_job_that_dies_is_an_error(monkeypatch):
    asked = []

    def story(name: str, *, launcher: str, ranks: int, timeout: float) -> FaultStory:
        asked.append((name, launcher, ranks))
        return FaultStory(name, launcher, (1,), EVENTS, (2, 2))

    monkeypatch.setattr("dtlearn.production.faults.scenarios.run_scenario", story)
    times = measure_restarts(2, 2)
    assert asked == [("kill", "torchrun", 2), ("kill", "run_ranks", 2)] * 2
    assert times.seconds["run_ranks"]["training"] == pytest.approx((2.0, 2.0)) and times.equal
    monkeypatch.setattr(
        "dtlearn.production.faults.scenarios.run_scenario",
        lambda name, **options: FaultStory(name, "torchrun", (1,), (), (2,), error="all is lost"),
    )
    with pytest.raises(RuntimeError, match="did not survive the death of a rank: all is lost"):
        measure_restarts(2, 1)


def test_a_real_restart_has_all_parts_in_order():
    assert "kill" in SCENARIOS
    noticed, joined, training = parts_of(run_scenario("kill", ranks=2)).values()
    assert 0 < noticed < joined < training
