"""The judge as a process: verdicts, interrupts, deaths. Its ranks are looked up by the tests' mark in /proc."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from dtlearn.grading.judge_process import client
from dtlearn.grading.learner import attempts
from dtlearn.grading.verdict import Result, Verdict
from dtlearn.runtime.agent import client as agent_client
from tests import warm_starts
from tests.grading.small_course import ENDLESS, ID, RIGHT, WRONG, small_course

MARKER = f"DTLEARN_TEST_SESSION={os.environ['DTLEARN_TEST_SESSION']}".encode()
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return small_course(tmp_path_factory.mktemp("kurs ü"), seconds=60).root


@pytest.fixture(scope="module", autouse=True)
def the_end():
    yield
    client._judges.end()


def marked() -> set[int]:
    """Living processes that these tests started."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
            if state not in "ZX" and MARKER in (folder / "environ").read_bytes().split(b"\0"):
                found.add(int(folder.name))
        except OSError:
            continue
    return found - {os.getpid()}


def comes_true(done, seconds=5.0):
    deadline = time.monotonic() + seconds
    while not (came := done()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return came


def grade(root, source, **options):
    *steps, verdict = client.get_judge().grade(root, ID, source=source, **options)
    return steps, verdict


def test_a_verdict_comes_with_its_steps(root):
    steps, verdict = grade(root, WRONG, seed=5)
    assert isinstance(verdict, Verdict) and (verdict.code, verdict.seed) == ("DTL-VALUE-FACTOR", 5)
    assert [(type(r), done, total) for r, done, total in steps] == [(Result, 1, 2), (Result, 2, 2)]
    assert steps[0][0] == verdict.results[0]
    kept = attempts.listing(attempts.attempts_folder(root, ID))
    assert kept[-1].path.read_text() == WRONG and kept[-1].verdict == verdict


def test_the_file_is_graded_if_no_text_is_given(root):
    *_, verdict = client.get_judge().grade(root, ID)
    assert verdict.state == "not-attempted"


def test_it_is_another_process_in_another_session(root):
    judge = client.get_judge()
    assert judge.pid != os.getpid() and os.getsid(judge.pid) == judge.pid
    assert client.get_judge() is judge


def test_what_cannot_be_graded_is_a_value_error(root):
    with pytest.raises(ValueError, match=r"there is no exercise 'ch01\.none'"):
        list(client.get_judge().grade(root, "ch01.none"))
    stub = root / "exercises/ch01_small/average.py"
    kept = stub.rename(stub.with_suffix(".aside"))
    with pytest.raises(ValueError, match="does not exist"):
        list(client.get_judge().grade(root, ID))
    kept.rename(stub)
    assert grade(root, RIGHT)[1].passed, "and the judge goes on"


def test_what_an_answer_prints_does_not_disturb(root):
    noisy = RIGHT.replace("    total = x", "    print('{\"id\": 1}', flush=True)\n    total = x")
    assert grade(root, noisy)[1].passed


def test_an_interrupt_stops_the_grading_and_leaves_nothing(root):
    judge = client.get_judge()
    grade(root, RIGHT)
    before = marked()
    timer = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        grade(root, ENDLESS)
    timer.join()
    assert time.monotonic() - begun < 4
    assert comes_true(lambda: marked() <= before), marked() - before
    assert client.get_judge() is judge, "it lives on"
    assert grade(root, RIGHT)[1].passed
    assert ENDLESS in [a.path.read_text() for a in attempts.listing(attempts.attempts_folder(root, ID))]


def test_one_who_stops_listening_stops_the_grading(root):
    steps = client.get_judge().grade(root, ID, source=RIGHT)
    next(steps)
    steps.close()
    assert grade(root, RIGHT)[1].passed


def test_one_who_has_the_verdict_may_stop_listening(root):
    judge = client.get_judge()
    steps = judge.grade(root, ID)
    assert isinstance(next(steps), Verdict)
    steps.close()
    assert judge.process.alive and client.get_judge() is judge


def test_a_judge_that_does_not_stop_is_ended(root, monkeypatch):
    monkeypatch.setattr(client, "TO_STOP_GRADING", 0.5)
    judge = client.get_judge()
    grade(root, RIGHT)
    os.kill(judge.pid, signal.SIGSTOP)
    steps = judge.grade(root, ID, source=RIGHT)
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        next(steps)
    assert not judge.process.alive
    assert grade(root, RIGHT)[1].passed


def test_a_dead_judge_is_told_and_replaced(root):
    judge = client.get_judge()
    grade(root, RIGHT)
    own = agent_client._agents.current  # of this process, if another test used it
    before = marked() - {own.pid if own else 0, warm_starts.source_pid()}
    threading.Timer(0.5, os.kill, (judge.pid, signal.SIGKILL)).start()
    with pytest.raises(client.JudgeError, match=r"the judge process ended \(exit code -9\)"):
        grade(root, ENDLESS)
    assert comes_true(lambda: not marked() & before), "its agent and ranks went with it"
    assert grade(root, RIGHT)[1].passed


def test_it_can_be_stopped_while_it_loads(root, monkeypatch):
    monkeypatch.setattr(client, "TO_STOP_GRADING", 20.0)
    client._judges.end()
    judge = client.get_judge()
    os.kill(judge.pid, signal.SIGSTOP)  # a warm copy would be ready, and could have answered, before the interrupt
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    threading.Timer(0.5, os.kill, (judge.pid, signal.SIGCONT)).start()
    with pytest.raises(KeyboardInterrupt):
        next(judge.grade(root, ID, source=RIGHT))
    assert client.get_judge() is judge, "it lives on"
    assert grade(root, RIGHT)[1].passed


_OWNER = """
import sys
from pathlib import Path
from dtlearn.grading.judge_process.client import get_judge
steps = get_judge().grade(Path(sys.argv[1]), "ch01.average", source=Path(sys.argv[2]).read_text())
next(steps)
print("first result", flush=True)
next(steps)
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_when_its_owner_dies_nothing_is_left(root, tmp_path, how):
    answer = tmp_path / "a.py"
    answer.write_text(
        RIGHT.replace("total = x", "import time; time.sleep(600 * (dist.get_world_size() > 1)); total = x")
    )
    before = marked()
    # One that is really started, and its judge too.
    program = _OWNER if how == signal.SIGKILL else warm_starts.MAY_BE_WARM + _OWNER
    command = [sys.executable, "-c", program, str(root), str(answer)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as owner:
        assert owner.stdout.readline() == "first result\n"
        assert comes_true(lambda: len(marked() - before) >= 5)  # owner, judge, agent, two ranks
        owner.send_signal(how)
    assert comes_true(lambda: marked() <= before), marked() - before
