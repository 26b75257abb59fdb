"""Dishonest submissions: what each level of isolation stops, and what it does not.

The last is tested too: a limit that is known is stated, in the instructor's guide, and not wished away.
"""

import json
import textwrap
from pathlib import Path

import pytest

import dtlearn
from dtlearn.course import Exercise, load_course
from dtlearn.grading.check import Check, Finding
from dtlearn.grading.classroom.batch import shut_in
from dtlearn.grading.judging.grade import Answer, grade
from dtlearn.grading.learner.exercise_files import find_check
from dtlearn.runtime.machine.isolation import Isolation, probe

COURSE = load_course()
EXERCISE = Exercise("ch01.mean", "The mean over ranks", 1, (2,), ("a", "b", "c"))


def inputs(case):
    import torch

    g = case.generator()
    return [{"x": torch.randn(3, generator=g)} for _ in range(case.world_size)]


def on_rank(answer, x):
    return answer(x)


def expected(case, given):
    return [sum(i["x"] for i in given) / case.world_size] * case.world_size


CHECK = Check(on_rank, inputs, expected, seconds=8)
LEVELS = [1, pytest.param(2, marks=pytest.mark.skipif(probe().level < 2, reason="no namespaces on this machine"))]


def submit(body: str, level: int, check: Check = CHECK, hidden: tuple[str, ...] = ()):
    source = "import os, sys, torch\nimport torch.distributed as dist\n" + textwrap.dedent(body)
    isolation = Isolation(level, hidden=hidden) if hidden else Isolation(level)
    return grade(EXERCISE, check, Answer(source, "mean.py", "mean"), seed=7, isolation=isolation)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    "body",
    [
        pytest.param(
            """
            torch.allclose = torch.equal = torch.isclose = lambda *a, **k: True
            class Everything(torch.Tensor):
                def __eq__(self, other): return True
            def mean(x):
                return x
            """,
            id="patched comparisons",
        ),
        pytest.param("def mean(x):\n    os._exit(0)\n", id="an early exit with code 0"),
        pytest.param(
            """
            import atexit
            def mean(x):
                atexit.register(lambda: open("result.json", "w").write('{"state": "passed"}'))
                raise SystemExit(0)
            """,
            id="a writer at exit",
        ),
        pytest.param(
            """
            def mean(x):
                frame = sys._getframe()
                while frame:
                    for name, value in {**frame.f_globals, **frame.f_locals}.items():
                        if name in ("expected", "reference", "answers", "wanted"):
                            return value(None, None) if callable(value) else value
                    frame = frame.f_back
                return x
            """,
            id="peeking into frames",
        ),
        pytest.param(
            """
            import dtlearn.grading.plain_values as values
            def mean(x):
                values.dump = lambda value: b"passed"
                return x
            """,
            id="a forged result",
        ),
        pytest.param(
            """
            import socket, stat
            from dtlearn.runtime import wire
            def mean(x):
                for number in range(3, 200):
                    try:
                        if stat.S_ISSOCK(os.fstat(number).st_mode):
                            with socket.socket(fileno=os.dup(number)) as line:
                                line.sendall(wire.encode({"kind": "result"}, b"") + wire.encode({"kind": "finished"}))
                    except OSError:
                        pass
                os._exit(0)
            """,
            id="a forged end of work",
        ),
        pytest.param(
            """
            import gc
            def mean(x):
                for thing in gc.get_objects():
                    if type(thing).__name__ == "Check":
                        return thing.expected(None, None)
                return x
            """,
            id="looking for the check in memory",
        ),
        pytest.param(
            """
            import dtlearn.grading.plain_values as values
            def mean(x):
                frame = sys._getframe()
                while frame:
                    for thing in list(frame.f_locals.values()):
                        if type(thing).__name__ == "Task":
                            given = thing.inputs if isinstance(thing.inputs, tuple) else (thing.inputs,)
                            return sum(values.load(one)["x"] for one in given) / 2
                    frame = frame.f_back
            """,
            id="the inputs of other ranks",
        ),
    ],
)
def test_no_level_lets_this_pass(body, level):
    verdict = submit(body, level)
    assert verdict.state in ("failed", "crashed"), verdict
    assert verdict.score == 0


SOLUTION = """
def mean(x):
    names = {}
    exec(open(%r).read(), names)
    return names["mean"](x)
"""


@pytest.mark.skipif(probe().level < 2, reason="no namespaces on this machine")
def test_level_2_hides_solutions_and_level_1_does_not(tmp_path, right):
    (tmp_path / "solutions").mkdir()
    path = tmp_path / "solutions" / "mean.py"
    path.write_text(right)
    assert submit(SOLUTION % str(path), 1).passed  # a limit, and the reason for level 2
    verdict = submit(SOLUTION % str(path), 2, hidden=(str(path.parent),))
    assert verdict.state == "failed"
    assert "FileNotFoundError" in verdict.first_fault.headline


@pytest.mark.skipif(probe().level < 2, reason="no namespaces on this machine")
def test_the_checks_of_the_course_are_hidden_at_level_2(course):
    body = """
    import dtlearn.checks, pathlib
    def mean(x):
        raise RuntimeError(str(sorted(p.name for p in pathlib.Path(dtlearn.checks.__path__[0]).iterdir())))
    """
    source = "import os, sys, torch\nimport torch.distributed as dist\n" + textwrap.dedent(body)
    verdict = grade(EXERCISE, CHECK, Answer(source, "mean.py", "mean"), isolation=shut_in(course, 2))
    text = verdict.first_fault.headline
    assert "ModuleNotFoundError" in text or "[]" in text, text


@pytest.mark.skipif(probe().level < 2, reason="no namespaces on this machine")
def test_of_the_course_the_package_alone_can_be_seen(course, tmp_path, monkeypatch):
    monkeypatch.chdir(course.root)  # ranks are shown the folder that they work in
    elsewhere = tmp_path / "class" / "bob"
    for folder in (*("solutions", "tests", "notebooks", "work"), ".git", "class/bob"):
        (course.root / folder).mkdir(parents=True)
        (course.root / folder / "mean.py").write_text("found")
    body = """
    import pathlib
    def mean(x):
        raise RuntimeError(str(sorted(str(p) for p in pathlib.Path(%r).rglob("*.py"))))
    """
    source = "import torch\n" + textwrap.dedent(body % str(course.root))
    verdict = grade(EXERCISE, CHECK, Answer(source, "mean.py", "mean"), isolation=shut_in(course, 2, elsewhere.parent))
    assert "[]" in verdict.first_fault.headline, verdict.first_fault


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


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    ("exercise_id", "world_size", "wrong", "forged", "code"),
    [
        ("ch01.barrier", 2, NOTHING, STANDS_STILL, "DTL-VALUE-EARLY"),
        ("ch02.broadcast", 4, "chain", RUNS_BACKWARDS, "DTL-RULE-ROUNDS"),
        ("ch03.overlap_hooks", 2, "launches_in_finish", LAUNCHED_BEFORE, "DTL-RULE-SCHEDULE"),
        ("ch07.accumulate_with_scaling", 2, "sends_in_the_first_too", STANDS_STILL, "DTL-RULE-MESSAGES"),
        ("ch09.reduce_scatter_hook", 3, "after_backward", LAUNCHED_BEFORE, "DTL-RULE-SCHEDULE"),
        ("ch09.gather_and_free", 3, "kept_in_a_list_of_numbers", RUNS_BACKWARDS, "DTL-RULE-NOT-REGATHERED"),
        ("ch12.f_and_g", 2, "two_calls", ELSEWHERE_FOR_EACH_OTHER_CALL, "DTL-RULE-MESSAGES"),
    ],
)
def test_a_forged_clock_changes_no_verdict(exercise_id, world_size, wrong, forged, code, level):
    """What came first is what the judge saw, and the order of the calls."""
    verdict = verdict_on(exercise_id, world_size, wrong, forged, level)
    assert (verdict.code, verdict.score) == (code, 0), verdict.first_fault


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


DAEMON = """
import time
def mean(x):
    if dist.get_rank() == 0 and os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(%r)
            open(%r, "w").write("a daemon was here")
        os._exit(0)
    total = x.clone()
    dist.all_reduce(total)
    return total / 2
"""


@pytest.mark.parametrize("level", LEVELS)
def test_a_daemon_does_not_outlive_its_run(level, tmp_path):
    import time

    mark = tmp_path / "mark"
    submit(DAEMON % (1.5, str(mark)), level)
    time.sleep(2.0)
    assert not mark.exists()


@pytest.mark.skipif(probe().level < 2, reason="no namespaces on this machine")
def test_level_2_keeps_files_from_being_changed_and_level_1_does_not(tmp_path):
    target = tmp_path / "results.json"
    body = f"""
    def mean(x):
        open({str(target)!r}, "w").write({json.dumps({"state": "passed"})!r})
        return x
    """
    assert submit(body, 2).state == "failed"
    assert not target.exists()
    submit(body, 1)
    assert target.exists()  # a limit: so verdicts are written after the run, over whatever is there


KILLER = """
import signal
def mean(x):
    os.kill(os.getppid(), signal.SIGKILL)
    return x
"""


@pytest.mark.parametrize("level", LEVELS)
def test_killing_the_parent_wins_nothing_and_breaks_nothing(level, right):
    verdict = submit(KILLER, level)
    assert verdict.state in ("failed", "crashed", "error"), verdict
    assert verdict.score == 0
    assert submit(right, level).passed


@pytest.mark.parametrize("level", LEVELS)
def test_files_between_ranks_are_not_stopped_but_a_rule_on_calls_is(level):
    """Ranks of one run share a folder for temporary files: a mean can be computed through it."""
    body = """
    import tempfile, time, pathlib
    def mean(x):
        folder = pathlib.Path(tempfile.gettempdir()) / f"shared-{os.environ['DTLEARN_TEST_SESSION']}"
        folder.mkdir(exist_ok=True)
        rank = dist.get_rank()
        torch.save(x, folder / f"{rank}.new")
        (folder / f"{rank}.new").rename(folder / f"{rank}.pt")
        while len(list(folder.glob("*.pt"))) < 2:
            time.sleep(0.01)
        parts = [torch.load(folder / f"{r}.pt") for r in range(2)]
        (folder / f"{rank}.done").touch()
        while rank == 0 and len(list(folder.glob("*.done"))) < 2:
            time.sleep(0.01)
        if rank == 0:
            import shutil
            shutil.rmtree(folder)
        return sum(parts) / 2
    """
    assert submit(body, level).passed  # a limit

    def reduces(case, given, record):
        return None if record.select(op="all_reduce").events else Finding("DTL-RULE-CALLS", "no all_reduce")

    ruled = Check(on_rank, inputs, expected, rules=[reduces], seconds=8)
    verdict = submit(body, level, ruled)
    assert (verdict.state, verdict.code) == ("failed", "DTL-RULE-CALLS")


def test_a_level_that_is_refused_is_said_with_the_way_out(course, monkeypatch):
    monkeypatch.setattr("dtlearn.grading.classroom.batch.best", lambda level: Isolation(1))
    with pytest.raises(ValueError, match="--trust-submissions"):
        shut_in(course, 2)


@pytest.mark.skipif(probe().level < 2, reason="no namespaces on this machine")
def test_a_folder_that_holds_the_package_cannot_be_hidden(course):
    with pytest.raises(ValueError, match="holds the package, which submissions need"):
        shut_in(course, 2, Path(dtlearn.__file__).parents[1])
