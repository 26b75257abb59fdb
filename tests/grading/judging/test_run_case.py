import os
import time
from dataclasses import replace

import pytest

from dtlearn.grading import plain_values
from dtlearn.grading.check import Case, Check, Stress
from dtlearn.grading.judging.run_case import Answer, CaseRanks
from dtlearn.runtime.errors import RankError, RanksDisagree, RanksTimeout
from dtlearn.runtime.machine.patience import MOST
from dtlearn.runtime.run import Run


def inputs(case):
    return [{"x": float(rank)} for rank in range(case.world_size)]


def on_rank(answer, x):
    return answer(x)


def run(source: str, world_size: int = 2, **options):
    check = Check(on_rank, inputs, lambda case, given: [], **{"seconds": 5.0, **options})
    with CaseRanks() as ranks:
        return run_on(ranks, check, world_size, source)


def run_on(ranks: CaseRanks, check: Check, world_size: int, source: str):
    case = Case("a case", world_size, seed=0)
    return ranks.run(check, case, inputs(case), Answer("import torch.distributed as dist\n" + source, "f.py", "f"))


def values(evidence) -> list:
    assert evidence.error is None, evidence.error
    return [plain_values.load(data)["value"] for data in evidence.returned]


def test_each_rank_gets_its_own_inputs_and_its_result_comes_back_as_bytes():
    evidence = run("def f(x):\n    dist.barrier()\n    print('rank', x)\n    return x + 1\n", 3)
    assert evidence.error is None and all(isinstance(data, bytes) for data in evidence.returned)
    assert values(evidence) == [1, 2, 3]
    assert [event.op for event in evidence.record] == ["barrier"] * 3 and evidence.output[2].strip() == "rank 2.0"
    assert 0 < evidence.seconds < 5


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("def f(x):\n    raise KeyError('k')\n", RankError),
        ("def f(x):\n    if x: dist.barrier()\n", RanksDisagree),
        ("import time\ndef f(x):\n    time.sleep(60)\n", RanksTimeout),
    ],
)
def test_what_went_wrong_is_kept(source, error):
    evidence = run(source, seconds=2.0)
    assert type(evidence.error) is error
    assert None in evidence.returned


def test_the_time_limit_of_a_busy_machine_comes_before_that_of_the_processor(monkeypatch):
    """Or a loop without an end would be a crash there, and not a timeout."""
    held_to = []

    def start(*args, limits, **options):
        held_to.append(limits.cpu_seconds)
        return Run(*args, limits=limits, **options)

    monkeypatch.setattr("dtlearn.grading.judging.run_case.Run", start)
    run("def f(x):\n    return x\n", seconds=5.0)
    assert held_to[0] > 5.0 * MOST


def marks_around_a_call(answer, x):
    from dtlearn.runtime.rank.task import mark

    mark("before")
    answer(x)
    mark("after")


@pytest.mark.parametrize("clock", ["", "time.monotonic_ns = lambda: 0\n", "time.monotonic_ns = lambda: 1 << 62\n"])
def test_marks_say_what_was_called_between_them_and_a_rank_is_held(clock):
    check = Check(
        marks_around_a_call, inputs, lambda case, given: [], hold=lambda case, rank, k: 0.3 * (k == rank == 1)
    )
    source = f"import time\nimport torch.distributed as dist\n{clock}def f(x):\n    dist.barrier()\n"
    with CaseRanks() as ranks:
        evidence = run_on(ranks, check, 2, source)
    assert evidence.error is None, evidence.error
    assert [(mark.rank, mark.label) for mark in evidence.record.marks] == [
        (r, x) for r in (0, 1) for x in ("before", "after")
    ]
    for before, after, call in zip(
        evidence.record.marks[::2], evidence.record.marks[1::2], evidence.record, strict=True
    ):
        assert before.answered_ns < call.start_ns < call.end_ns < after.came_ns
    held = evidence.record.marks[3]
    assert held.answered_ns - held.came_ns >= 0.3e9


def test_a_rank_that_leaves_sends_nothing():
    evidence = run("import os\ndef f(x):\n    os._exit(0)\n")
    assert isinstance(evidence.error, RankError) and evidence.returned == [None, None]


# Cases that share their ranks.

TWO = Check(on_rank, inputs, lambda case, given: [], cases={"one": {}, "two": {}}, seconds=5.0)
PID = "import os\ndef f(x):\n    dist.barrier()\n    return os.getpid()\n"


def test_cases_of_a_check_share_their_ranks():
    with CaseRanks() as ranks:
        one, two = (values(run_on(ranks, TWO, 2, PID)) for _ in range(2))
        assert one == two and len(set(one)) == 2
        others = {
            "another world size": values(run_on(ranks, TWO, 3, PID)),
            "another check": values(run_on(ranks, replace(TWO, seconds=4.0), 3, PID)),
        }
        assert ranks.drop() is False
        others["dropped"] = values(run_on(ranks, TWO, 3, PID))
    pids = [*one, *(pid for own in others.values() for pid in own)]
    assert len(set(pids)) == len(pids), others
    assert not [pid for pid in pids if os.path.exists(f"/proc/{pid}")]


@pytest.mark.parametrize(
    "check",
    [
        replace(TWO, stress=Stress(delays=0.001)),
        replace(TWO, hold=lambda case, rank, k: 0.0),
        replace(TWO, cases={"one": {}}),
    ],
    ids=["delays", "holds", "one case"],
)
def test_what_depends_on_chance_or_time_gets_fresh_ranks(check):
    with CaseRanks() as ranks:
        one, two = (values(run_on(ranks, check, 2, PID)) for _ in range(2))
    assert not set(one) & set(two)


def test_each_case_begins_as_on_fresh_ranks():
    source = """
import sys, torch
def f(x):
    first = len(sys.modules["exercise"].__dict__.setdefault("calls", []))
    sys.modules["exercise"].calls.append(1)
    pair = dist.new_group([0, 1])
    dist.barrier(pair)
    dist.all_reduce(torch.ones(3))
    print("rank", x)
    return [pair.group_name, first]
"""
    with CaseRanks() as ranks:
        one, two, three = (run_on(ranks, TWO, 2, source) for _ in range(3))
    assert values(one) == values(two) == values(three)
    for evidence in (two, three):
        assert [(e.op, e.group_seq) for e in evidence.record] == [(e.op, e.group_seq) for e in one.record]
        assert evidence.output == ["rank 0.0\n", "rank 1.0\n"]


def test_random_numbers_begin_as_on_fresh_ranks():
    source = """
import random, numpy, torch
def f(x):
    drawn = [torch.rand(2).tolist(), random.random(), float(numpy.random.rand())]
    random.seed(7)
    numpy.random.seed(7)
    torch.manual_seed(7)
    return drawn
"""
    with CaseRanks() as ranks:
        one, two = (values(run_on(ranks, TWO, 2, source)) for _ in range(2))
    for drawn in zip(*one, *two, strict=True):  # by torch, Python, numpy: by each rank in each case others
        assert len(set(map(str, drawn))) == 4


@pytest.mark.parametrize("end", ["raise KeyError(x)", "dist.barrier() if x else None", "os._exit(3)"])
def test_after_a_fault_ranks_are_fresh(end):
    source = f"import os\ndef f(x):\n    {end}\n"
    with CaseRanks() as ranks:
        first = values(run_on(ranks, TWO, 2, PID))
        assert run_on(ranks, TWO, 2, source).error is not None
        assert ranks.drop() is True  # others had passed on these: it has to be run again
        again = run_on(ranks, TWO, 2, source)
        assert again.error is not None and ranks.drop() is False
        one, two = (values(run_on(ranks, TWO, 2, PID)) for _ in range(2))
    assert len({*first, *one, *two}) == 6  # from now on no case shares


def test_each_case_has_the_whole_time():
    source = "import time\ndef f(x):\n    time.sleep(0.7)\n    return x\n"
    check = replace(TWO, seconds=1.0)
    with CaseRanks() as ranks:
        for _ in range(3):
            assert values(run_on(ranks, check, 2, source)) == [0.0, 1.0]


def test_an_interrupt_leaves_no_ranks(monkeypatch):
    def interrupt(self, *args):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), CaseRanks() as ranks:
        pids = values(run_on(ranks, TWO, 2, PID))
        monkeypatch.setattr(Run, "finish", interrupt)
        run_on(ranks, TWO, 2, "import time\ndef f(x):\n    time.sleep(60)\n")
    assert not [pid for pid in pids if os.path.exists(f"/proc/{pid}")]


def test_what_a_rank_writes_behind_its_last_word_harms_no_other_case():
    """It speaks on the rank's line, which only an answer that is up to something does."""
    source = """
import gc, os, socket, threading, time
def f(x):
    lines = [o for o in gc.get_objects() if type(o) is socket.socket and o.family == socket.AF_UNIX]
    def speak():
        time.sleep(0.3)
        for line in lines:
            line.send(b"x" * 64)
    threading.Thread(target=speak, daemon=True).start()
    return len(lines)
"""
    with CaseRanks() as ranks:
        assert values(run_on(ranks, TWO, 2, source))[0] > 0  # (`judge` sees that a thread was left, and drops them)
        time.sleep(0.6)
        assert ranks.drop() is False
        assert len(values(run_on(ranks, TWO, 2, PID))) == 2
