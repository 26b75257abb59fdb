import time

import pytest

from dtlearn.runtime.watch.watch import Watch
from tests.runtime.lines import call, write


@pytest.fixture
def logs(tmp_path):
    return {rank: tmp_path / f"calls-{rank}" for rank in range(2)}


def look_for(watch, ended, seconds=2.0):
    deadline = time.monotonic() + seconds
    while (found := watch.look(ended)) is None and time.monotonic() < deadline:
        time.sleep(0.01)
    return found


def test_a_deadlock_must_last_before_it_is_named(logs):
    watch = Watch(logs)
    write(logs[0], call(0))
    assert watch.look({1}) is None
    assert look_for(watch, {1}).code == "DTL-COLL-SKIP"


@pytest.mark.parametrize("broken", ["find_mismatch", "find_deadlock"])
def test_a_diagnosis_that_fails_frees_the_ranks_once_all_wait(logs, monkeypatch, broken):
    def fails(*_):
        raise LookupError("no such rank")

    monkeypatch.setattr(f"dtlearn.runtime.watch.watch.{broken}", fails)
    watch = Watch(logs)
    write(logs[0], call(0))
    assert look_for(watch, set(), seconds=0.6) is None  # rank 1 goes on
    fault = look_for(watch, {1})
    assert fault.code == "DTL-CANNOT-TELL" and "rank 0 waits" in fault.headline.replace("wait,", "waits,")
    assert "LookupError: no such rank" in fault.headline and list(fault.calls) == [0]
    assert watch.last_look({1}) is fault


def test_a_suspicion_that_passes_is_forgotten(logs):
    watch = Watch(logs)
    write(logs[0], call(0))
    assert watch.look({1}) is None
    write(logs[0], {"end": 0, "end_ns": 3})
    assert look_for(watch, {1}, seconds=0.6) is None


def test_a_mismatch_is_named_when_all_have_come(logs):
    watch = Watch(logs)
    write(logs[0], call(0))
    assert watch.look(set()) is None
    write(logs[1], call(0, shape=[2]))
    assert watch.look(set()).code == "DTL-COLL-SHAPE"


def test_the_last_look_finds_what_is_left_over(logs):
    watch = Watch(logs)
    write(logs[0], call(0), {"end": 0, "end_ns": 3})
    assert watch.look({0, 1}) is None
    assert watch.last_look({0, 1}).code == "DTL-COLL-SKIP"


def test_when_the_time_is_up_and_all_ranks_wait_work_that_was_thrown_away_is_named(logs):
    watch = Watch(logs)
    for path in logs.values():
        write(path, call(0, detail={"dropped": True}, asynchronous=True), call(1, op="barrier"))
    assert watch.look(set()) is None
    assert watch.last_look(set()).headline.startswith("rank 0 never waited for its 1st all_reduce")


def test_long_runs_are_forgotten_as_they_go(logs):
    watch = Watch(logs)
    for seq in range(2000):
        for path in logs.values():
            write(path, call(seq), {"end": seq, "end_ns": seq})
        if seq % 100 == 0:
            assert watch.look(set()) is None
    assert all(len(tail.calls) < 500 for tail in watch._tails.values())
    write(logs[0], call(2000))
    assert look_for(watch, {1}).calls[0].group_seq == 2000


def test_who_waits_is_told_with_the_count_of_that_operation(logs):
    watch = Watch(logs)
    for seq in range(300):  # more than are kept
        for path in logs.values():
            write(path, call(seq), {"end": seq, "end_ns": seq})
        watch.look(set())
    begun = time.monotonic_ns()
    write(logs[0], call(300, code="dist.all_reduce(t)", start_ns=begun - int(2e9)))
    assert watch.look(set()) is None
    (wait,) = watch.waiting().values()
    assert wait.text == "its 301st all_reduce, line 1: dist.all_reduce(t)"
    assert 2 <= wait.seconds < 10
    assert [len(events) for events in watch.last_calls().values()] == [8, 8]
    write(logs[1], call(300, start_ns=begun), {"end": 300, "end_ns": 1})
    write(logs[0], {"end": 300, "end_ns": 1})
    watch.look(set())
    assert watch.waiting() == {}


@pytest.mark.parametrize("again", [lambda watch: watch.look({1}), lambda watch: watch.last_look(set())])
def test_a_look_that_found_all_well_is_good_enough_for_a_moment_unless_a_rank_ends(logs, again):
    """Looking costs the head time that ranks could use."""
    watch = Watch(logs, calm=60)
    for rank in logs:
        write(logs[rank], call(0))
    assert watch.look(set()) is None
    for rank in logs:
        write(logs[rank], call(1, shape=[2 + rank]))
    assert watch.look(set()) is None  # not looked at yet
    assert again(watch).code == "DTL-COLL-SHAPE"
