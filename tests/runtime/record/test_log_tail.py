import json

import pytest

from dtlearn.runtime.record.log_tail import LogTail
from tests.runtime.lines import call, write


@pytest.fixture
def logs(tmp_path):
    return {rank: tmp_path / f"calls-{rank}" for rank in range(2)}


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


def test_a_call_whose_work_was_dropped_is_marked(logs):
    tail = LogTail(logs[0], 0)
    write(logs[0], call(0, asynchronous=True), {"dropped": 0}, {"dropped": 99})
    tail.read()
    assert tail.events()[0].detail == {"dropped": True}
    assert tail.blocked(tail.events(), 2) is None


def test_a_call_is_seen_as_the_latest_line_has_it_and_others_stay_the_same_objects(logs):
    tail = LogTail(logs[0], 0)
    write(logs[0], call(0, asynchronous=True), call(1))
    tail.read()
    first, second = tail.events()
    write(logs[0], {"wait": 0, "wait_ns": 5})
    tail.read()
    assert (first.wait_ns, tail.events()[0].wait_ns) == (None, 5) and tail.events()[1] is second
    write(logs[0], {"arrived": 0, "arrived_ns": 6}, {"end": 0, "end_ns": 9})
    tail.read()
    assert (tail.events()[0].arrived_ns, tail.events()[0].end_ns) == (6, 9)
    tail.forget({0})
    assert tail.events() == [second]
