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

EXERCISE = Exercise("ch01.double", "Twice a tensor", 1, (1, 2), ("a", "b", "c"))


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


def test_a_bubble_can_be_a_budget():
    exercise = Exercise(
        *("ch01.double", "Twice a tensor", 1, (1,), ("a", "b", "c")), budget={"bubble": {"good": 0.5, "optimal": 0.25}}
    )
    check = Check(on_rank, inputs, expected, bubble=lambda case, given, got: len(got) * 0.4)
    verdict = grade(exercise, check, Answer("def double(x):\n    return x * 2\n", "double.py", "double"), seed=1)
    assert (verdict.tier, verdict.results[0].bubble) == ("good", 0.4)
    assert verdict.notes == ("optimal: a mean bubble of at most 0.25 (just above the best known); yours: 0.4",)
    check = Check(on_rank, inputs, expected, bubble=lambda case, given, got: 0.6)
    verdict = grade(exercise, check, Answer("def double(x):\n    return x * 2\n", "double.py", "double"), seed=1)
    assert (verdict.tier, verdict.notes) == ("correct", ("good: a mean bubble of at most 0.5; yours: 0.6",))
