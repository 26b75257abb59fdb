"""The course's own restart: how often, with how many ranks, and what it writes down."""

from dtlearn.production.faults.on_run_ranks import restart_on_run_ranks
from dtlearn.production.faults.plan import JobPlan
from dtlearn.production.faults.plants import Plant
from dtlearn.production.faults.story import StoryLog, read_events


def told(folder, plant: Plant, **options):
    plan = JobPlan(str(folder), steps=4, save_every=1, step_seconds=0.0, group_timeout=30.0, plant=plant)
    log = StoryLog(folder, -1, 0)
    reason = restart_on_run_ranks(plan, 3, log, **options)
    log.close()
    return reason, read_events(folder, 0.0)


def test_a_job_goes_on_with_fewer_ranks_from_where_it_was(tmp_path):
    reason, events = told(tmp_path, Plant("kill", 2, 2), max_restarts=1, fewer=1)
    assert reason == ""
    assert [e.detail for e in events if e.what == "start"] == ["3 ranks", "2 ranks"]
    assert [(e.by, e.about, e.attempt) for e in events if e.by == "launcher"] == [("launcher", 2, 0)]
    assert {(e.rank, e.step) for e in events if e.what == "resumed" and e.attempt == 1} == {(0, 2), (1, 2)}


def test_a_job_is_given_up_with_the_reason_after_its_last_restart(tmp_path):
    reason, events = told(tmp_path, Plant("kill", 1, 1), max_restarts=0)
    assert reason == "rank 1 was killed by signal 9 (SIGKILL)"
    assert not [e for e in events if e.what == "finished"]
