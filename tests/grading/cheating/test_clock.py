"""Answers that change their clocks, or say themselves when something happened."""

import pytest

from dtlearn.course import load_course
from dtlearn.grading.judging.grade import Answer, grade
from dtlearn.grading.learner.exercise_files import find_check
from dtlearn.runtime.machine.isolation import Isolation

from .rows import LEVELS, tries

COURSE = load_course()

# Before an answer: `now` is every clock that it can reach, the recorder's too; `real` is what it was.
CLOCKS = """
import itertools, sys, time
from dtlearn.runtime.recording import call_log, clock
real, calls, moments = time.monotonic_ns, itertools.count(), {}
now = %s
time.monotonic_ns = time.perf_counter_ns = time.time_ns = clock.now_ns = call_log._clock = lambda: now()
time.monotonic = time.perf_counter = time.time = lambda: now() / 1e9
"""
STANDS_STILL = CLOCKS % "lambda: 0"
RUNS_BACKWARDS = CLOCKS % "itertools.count(1 << 60, -1000).__next__"
ELSEWHERE_FOR_EACH_OTHER_CALL = CLOCKS % (
    "lambda: 0 if sys._getframe(2).f_code.co_name == 'enter' and next(calls) % 2 == 0 else real()"
)
# After an answer: of what is launched in finish() the clock says that it was launched in the right hook.
LAUNCHED_BEFORE = (
    CLOCKS % "lambda: real()",
    """
kind = globals().get("Overlap") or Reducer
_arrived, _launch, _finish = kind.arrived, kind.launch, kind.finish
def arrived(self, *its):
    _arrived(self, *its)
    moments[its[-1]] = real()
def launch(self, *its):
    global now
    number = next(calls) % len(self.buckets)
    now = lambda: max(moments[k] for k in range(number + 1))
    _launch(self, *its)
    now = real
kind.arrived, kind.launch = arrived, launch
""",
)
NOTHING = "def barrier():\n    pass\n"


@pytest.mark.slow
@tries("rewrites the clock, where an exercise judges what came first (`ch01.barrier`; the overlap of chapters 3 and 9)")
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    ("exercise_id", "world_size", "wrong", "forged", "code"),
    [
        ("ch01.barrier", 2, NOTHING, STANDS_STILL, "DTL-VALUE-EARLY"),
        ("ch02.broadcast", 4, "chain", RUNS_BACKWARDS, "DTL-RULE-ROUNDS"),
        ("ch03.overlap_hooks", 2, "launches_in_finish", LAUNCHED_BEFORE, "DTL-MISTAKE"),
        ("ch07.accumulate_with_scaling", 2, "sends_in_the_first_too", STANDS_STILL, "DTL-RULE-MESSAGES"),
        ("ch09.reduce_scatter_hook", 3, "after_backward", LAUNCHED_BEFORE, "DTL-MISTAKE"),
        ("ch09.gather_and_free", 3, "kept_in_a_list_of_numbers", RUNS_BACKWARDS, "DTL-DIFFICULTY"),
        ("ch12.f_and_g", 2, "two_calls", ELSEWHERE_FOR_EACH_OTHER_CALL, "DTL-RULE-MESSAGES"),
    ],
)
def test_a_forged_clock_changes_no_verdict(exercise_id, world_size, wrong, forged, code, level):
    """What came first is what the judge saw, and the order of the calls."""
    verdict = verdict_on(exercise_id, world_size, wrong, forged, level)
    assert verdict.code == code and verdict.score < verdict.points, verdict.first_fault


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    "body",
    [
        pytest.param("def barrier():\n    task.mark('left')\n", id="one more"),
        pytest.param("task.mark = lambda label: None\n" + NOTHING, id="none"),
        pytest.param("def barrier():\n    say(label='left')\n", id="that is not waited for"),
        pytest.param("def barrier():\n    say(label=['left'])\n", id="that are none"),
        pytest.param("def barrier():\n    say(label='x' * (1 << 20))\n", id="that are long"),
        pytest.param("def barrier():\n    while True: task.mark('left')\n", id="without end"),
    ],
)
def test_forged_marks_win_nothing_and_fill_nothing(body, level):
    say = """
from dtlearn.runtime import wire
from dtlearn.runtime.rank import task
def say(**what):
    task._channel.sendall(wire.encode({"kind": "mark", **what}))
"""
    verdict = verdict_on("ch01.barrier", 2, body, say, level)
    assert (verdict.code, verdict.score) == ("DTL-TAMPERED", 0), verdict.first_fault


def verdict_on(exercise_id, world_size, wrong, forged, level):
    """On an answer between two texts, or after one; `wrong` may name one of tests/course/wrong."""
    chapter, exercise = next((c, e) for c in COURSE.chapters for e in c.exercises if e.id == exercise_id)
    path = COURSE.root / "tests/course/wrong" / chapter.slug / exercise.name / f"{wrong}.py"
    before, after = forged if isinstance(forged, tuple) else (forged, "")
    source = f"{before}\n{wrong if wrong.endswith(chr(10)) else path.read_text('utf-8')}\n{after}"
    answer = Answer(source, "answer.py", exercise.name)
    faults = []
    return grade(
        exercise,
        find_check(COURSE, exercise),
        answer,
        seed=7,
        world_sizes=(world_size,),
        isolation=Isolation(level),
        progress=lambda result, *_: faults.extend([result] if result.state != "passed" else []),
        stop=lambda: bool(faults),
    )
