from dtlearn.production.serving.rank_roles import RankRoles
from dtlearn.production.serving.role_timeline import RoleEvent, RoleLog, RoleOutcome, SeparateRun, ServedAnswer


def test_a_run_by_hand():
    train = [RoleEvent(0, "training", "step", n, 10.0 + n, 10.5 + n) for n in (1, 2, 3)]
    tested = [
        RoleEvent(1, "evaluation", "evaluate", 1, 12.2, 12.8),
        RoleEvent(1, "evaluation", "evaluate", 2, 13.6, 14),
    ]
    answers = (ServedAnswer(0, 2, (1, 2)),)
    outcomes = (
        RoleOutcome(tuple(train), (3.0, 2.0, 1.0)),
        RoleOutcome(tuple(tested), evaluations={1: 2.5, 2: 1.5}),
        RoleOutcome(answers=answers),
    )
    run = SeparateRun(RankRoles(1, 1, 1), outcomes)
    assert [(event.rank, event.step, round(event.start, 9)) for event in run.events] == [
        *((0, 1, 0.0), (0, 2, 1.0), (1, 1, 1.2), (0, 3, 2.0), (1, 2, 2.6))
    ]
    assert [round(seconds, 9) for seconds in run.step_seconds] == [1.0, 1.0]
    assert (run.at_once("step", "evaluate"), run.at_once("evaluate", "step")) == (1, 1)
    assert run.losses == (3.0, 2.0, 1.0) and run.evaluations == {1: 2.5, 2: 1.5} and run.answers == [*answers]
    assert run.select("evaluate", rank=0) == [] and len(run.select("evaluate")) == 2


def test_an_event_lasts_as_long_as_its_block():
    log = RoleLog(3, "serving")
    with log.note("load", 4), log.note("read", 4):
        pass
    (read, load) = log.events
    assert (load.rank, load.role, load.name, load.step) == (3, "serving", "load", 4)
    assert load.start <= read.start <= read.end <= load.end and load.seconds >= read.seconds
