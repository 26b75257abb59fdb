"""Answers that leave processes behind, or end or stop those above them: reaper, agent, guard, grader, server."""

import os
import time

import pytest

from dtlearn.grading.classroom.batch import shut_in
from dtlearn.runtime.machine.processes import descendants
from tests.runtime.strays import all_gone

from .hand_in import HEAD, submit
from .rows import LEVELS, needs_level_2, tries

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
    mark = tmp_path / "mark"
    submit(DAEMON % (1.5, str(mark)), level)
    time.sleep(2.0)
    assert not mark.exists()


# On rank 0, once all ranks are there: signals one of the processes above it, and goes on as if nothing was.
ATTACK = (
    HEAD
    + """
import signal
def above(number):
    pid = os.getpid()
    for _ in range(number):
        pid = int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])
    return pid
def beside(pid):
    parent = above(LEVELS_UP)
    return next(int(one) for one in open(f"/proc/{parent}/task/{parent}/children").read().split() if int(one) != pid)
def mean(x):
    if dist.get_world_size() > 1:
        dist.barrier()
        if dist.get_rank() == 0:
            os.kill(WHOM, signal.SIGNAL)
    return x
"""
)
WHOM = {  # by level: who can be reached, and how
    0: {"the agent": "above(1)", "the guard": "above(2)", "the grader": "beside(above(1))", "the server": "above(3)"},
    1: {
        "the reaper": "above(1)",
        "the agent": "above(2)",
        "the guard": "above(3)",
        "the grader": "beside(above(2))",
        "the server": "above(4)",
    },
    2: {"the reaper": "above(1)", "all": "-1"},
}


@pytest.fixture
def judged(graded):
    """`judged(text, isolation)`: the verdict on an answer, of the processes that grade a class."""
    return lambda text, isolation: graded(text, isolation)[0]


@pytest.mark.slow
@tries("ends or stops the process above it")
@pytest.mark.parametrize("signal", ["SIGKILL", "SIGSTOP"])
@pytest.mark.parametrize("level", [0, 1, pytest.param(2, marks=needs_level_2)])
def test_who_ends_or_stops_what_is_above_it_wins_nothing_and_holds_nobody_up(
    judged, graders, course, right, level, signal
):
    isolation, before = shut_in(course, level), set(descendants(os.getpid()))
    for who, pid in WHOM[level].items():
        text = ATTACK.replace("WHOM", pid).replace("SIGNAL", signal).replace("LEVELS_UP", str(2 + level))
        begun = time.monotonic()
        found = judged(text, isolation)
        assert found.state in ("failed", "crashed", "timeout", "error"), (who, found)
        assert not getattr(found, "score", 0) and time.monotonic() - begun < 45, (who, found)
        again = judged(right, isolation)
        if who == "the server" and again.state == "error":  # of a server that was stopped only this one hears
            again = judged(right, isolation)
        assert again.state == "passed", (who, again)
    assert all_gone(set(descendants(os.getpid())) - before - {graders.process.pid}, 20)
