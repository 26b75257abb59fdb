import json
import time

import pytest

from dtlearn.runtime.watch import LogTail, Watch

CALL = {
    "op": "all_reduce",
    "group": "world",
    "nbytes": 4,
    "dtype": "float32",
    "shape": [1],
    "peer": None,
    "detail": {},
    "asynchronous": False,
    "file": "cell.py",
    "line": 1,
    "code": "",
    "start_ns": 1,
}


@pytest.fixture
def logs(tmp_path):
    return {rank: tmp_path / f"calls-{rank}" for rank in range(2)}


def write(path, *lines):
    with path.open("a") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


def call(seq, **changes):
    return {**CALL, "seq": seq, "group_seq": seq, **changes}


def look_for(watch, ended, seconds=2.0):
    deadline = time.monotonic() + seconds
    while (found := watch.look(ended)) is None and time.monotonic() < deadline:
        time.sleep(0.01)
    return found


def test_a_tail_reads_only_whole_new_lines(logs):
    tail = LogTail(logs[0], 0)
    assert not tail.read()
    half = json.dumps(call(1))
    write(logs[0], call(0))
    with logs[0].open("a") as file:
        file.write(half[:20])
    assert tail.read() and len(tail.events()) == 1
    with logs[0].open("a") as file:
        file.write(half[20:] + "\n")
    assert tail.read() and len(tail.events()) == 2


def test_a_wait_for_an_asynchronous_call_blocks(logs):
    tail = LogTail(logs[0], 0)
    write(logs[0], call(0, asynchronous=True))
    tail.read()
    assert tail.blocked(tail.events(), 2) is None
    write(logs[0], {"wait": 0, "wait_ns": 5})
    tail.read()
    assert tail.blocked(tail.events(), 2).seq == 0
    write(logs[0], {"end": 0, "end_ns": 9})
    tail.read()
    assert tail.blocked(tail.events(), 2) is None


def test_a_hidden_call_blocks_only_after_a_while(logs):
    tail = LogTail(logs[0], 0)
    write(logs[0], call(0, asynchronous=True, detail={"hidden": True}))
    tail.read()
    assert tail.blocked(tail.events(), int(1e9)) is None
    assert tail.blocked(tail.events(), int(4e9)).seq == 0


def test_a_deadlock_must_last_before_it_is_named(logs):
    watch = Watch(logs)
    write(logs[0], call(0))
    assert watch.look({1}) is None
    assert look_for(watch, {1}).code == "DTL-COLL-SKIP"


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
