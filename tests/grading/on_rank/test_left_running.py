"""Memory that an answer uses, and what it leaves running."""

import subprocess
import sys
import threading

import pytest
import torch

from dtlearn.course import Exercise
from dtlearn.grading.check import Check
from dtlearn.grading.judging.grade import Answer, grade
from dtlearn.grading.on_rank.left_running import left_running
from dtlearn.models.memory_ledger import MemoryLedger, measured

EXERCISE = Exercise("ch01.double", "Twice a tensor", 1, (1, 2), ("a", "b", "c"))


def peak_of(work) -> int:
    x = torch.ones(1000)
    with MemoryLedger() as ledger:
        work(x)
    return ledger.peak


@pytest.mark.parametrize(
    ("work", "tensors"),
    [
        (lambda x: x + 1, 1),
        (lambda x: x.add_(1), 0),
        (lambda x: x.view(10, 100).t(), 0),
        (lambda x: [x + 1, x + 2, x + 3], 3),
        (lambda x: (x + 1) * 2, 2),  # the sum lives until the product is there
        (lambda x: [(x + k).sum() for k in range(50)], 1),  # one after the other
        (lambda x: torch.cat([x, x]), 2),
        (lambda x: torch.empty(3000), 3),
    ],
)
def test_the_peak_is_that_of_tensors_that_live_at_once(work, tensors):
    assert tensors * 4000 <= peak_of(work) <= tensors * 4000 + 1000


def test_what_is_gone_is_taken_off():
    with MemoryLedger() as ledger:
        a = torch.ones(100)
        assert ledger.now == 400
        view = a[:10]
        del a
        assert ledger.now == 400  # a view keeps the memory
        del view
        assert ledger.now == 0
    with measured(False) as none:
        assert none is None


def test_threads_and_processes_are_named():
    before = set(threading.enumerate())
    others = left_running(before)  # what starts ranks, if an earlier test needed it
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait, name="forgotten")
    thread.start()
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    left = " ".join(left_running(before))
    stop.set()
    thread.join()
    process.communicate()
    assert "input()" not in " ".join(others)
    assert "the thread 'forgotten'" in left
    assert "the process" in left and "input()" in left
    assert left_running(before) == others


def inputs(case):
    return [{"x": torch.ones(1000)} for _ in range(case.world_size)]


def on_rank(answer, x):
    return answer(x)


def expected(case, given):
    return [torch.full((1000,), 2.0)] * case.world_size


CHECK = Check(on_rank, inputs, expected, memory=lambda case, given: 1.5 * 4000, seconds=10)


@pytest.mark.parametrize(
    ("body", "state", "code"),
    [
        ("return x * 2", "passed", ""),
        ("kept = [x + k for k in range(5)]\n    return kept[1]", "failed", "DTL-RULE-MEMORY"),
        ("import threading, time\n    threading.Thread(target=time.sleep, args=(9,)).start()\n    return x * 2",
         "failed", "DTL-LEAK"),
        ("import subprocess\n    subprocess.Popen(['sleep', '9'])\n    return x * 2", "failed", "DTL-LEAK"),
    ],
)  # fmt: skip
def test_answers(body, state, code):
    verdict = grade(EXERCISE, CHECK, Answer(f"def double(x):\n    {body}\n", "double.py", "double"), seed=1)
    assert (verdict.state, verdict.code) == (state, code), verdict
    assert verdict.results[0].peak_bytes is not None
    if code == "DTL-RULE-MEMORY":
        assert "20,000 bytes" in verdict.first_fault.headline


def test_memory_can_be_a_budget():
    exercise = Exercise(
        *("ch01.double", "Twice a tensor", 1, (1,), ("a", "b", "c")), budget={"peak_bytes": {"optimal": "4000"}}
    )
    loose = Check(on_rank, inputs, expected, memory=lambda case, given: 1e9)
    for body, tier in (("x * 2", "optimal"), ("(x + x + x) - x", "correct")):
        source = f"def double(x):\n    return {body}\n"
        assert grade(exercise, loose, Answer(source, "double.py", "double"), seed=1).tier == tier
