import os
import select
import signal
import subprocess
import sys
import threading
import time

import pytest

from dtlearn.runtime.machine import patience
from dtlearn.runtime.machine.processes import (
    children,
    close_all_but,
    communicate,
    descendants,
    ended_children,
    fill_standard_streams,
    has_ended,
    kill_below,
    start_time,
    sweep,
    wake_at_ends,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")


def in_a_fork(work) -> int:
    """The exit code of `work` in a forked process."""
    pid = os.fork()
    if pid == 0:
        code = 99
        try:
            code = work()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_process_is_named_by_its_number_and_start():
    assert start_time(os.getpid()) == start_time(os.getpid()) > 0
    process = subprocess.Popen(["true"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert start_time(process.pid) is None  # a zombie
    process.wait()
    assert start_time(process.pid) is None


def test_children_and_their_children_are_found():
    with subprocess.Popen(["sh", "-c", "sleep 60 & echo $!; wait"], stdout=subprocess.PIPE, text=True) as process:
        below = int(process.stdout.readline())
        try:
            assert process.pid in children(os.getpid())
            assert below not in children(os.getpid())
            assert {process.pid, below} <= set(descendants(os.getpid()))
        finally:
            os.kill(below, 9)


def test_all_is_killed_but_what_is_spared_and_a_sweep_ends_that_too():
    def work():
        spared = subprocess.Popen(["sleep", "60"])
        other = subprocess.Popen(["sleep", "60"])
        killed = kill_below([spared.pid])
        alone = killed == [other.pid] and other.wait() == -signal.SIGKILL and start_time(spared.pid) is not None
        ended = []
        swept = sweep(lambda pid, status: ended.append(pid)) == []
        return 0 if alone and swept and ended == [spared.pid] and start_time(spared.pid) is None else 1

    assert in_a_fork(work) == 0


def test_the_end_of_a_child_wakes_and_is_told():
    def work():
        wake = wake_at_ends()
        child = subprocess.Popen(["false"])
        woken = select.select([wake], [], [], 60)[0] == [wake]
        told = [ended[:2] for ended in ended_children()]
        return 0 if woken and told == [(child.pid, 1 << 8)] and not list(ended_children()) else 1

    assert in_a_fork(work) == 0


def start(code):
    return subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_a_process_that_cannot_get_a_processor_has_longer_to_end(monkeypatch):
    with start("print(); input()") as process:
        process.stdout.readline()  # it runs
        assert not has_ended(process, 0.05)
        monkeypatch.setattr(patience, "_queued", lambda pid: time.monotonic())  # everybody waits, all the time
        threading.Timer(0.8, process.stdin.close).start()
        assert has_ended(process, 0.5) and process.returncode == 1


def test_what_a_process_says_is_read_and_one_that_never_ends_is_killed():
    with start("print(input() * 100_000)") as process:
        assert communicate(process, 60.0, "ab\n") == ("ab" * 100_000 + "\n", None)
    with start("import time; time.sleep(600)") as process:
        with pytest.raises(subprocess.TimeoutExpired):
            communicate(process, 0.05)
        assert process.returncode == -signal.SIGKILL


def test_only_the_first_process_of_a_namespace_may_end_everything():
    with pytest.raises(AssertionError):
        sweep(alone=True)


@pytest.mark.parametrize("keep", [{0, 1, 2}, {1, 2}, {2}, {0, 2, 40}])
def test_all_other_descriptors_are_closed(keep):
    def work():
        os.dup2(2, 40)
        os.dup2(2, 41)
        close_all_but(keep)
        found = set()
        for descriptor in range(100):
            try:
                os.fstat(descriptor)
                found.add(descriptor)
            except OSError:
                pass
        return 0 if found == keep else 1

    assert in_a_fork(work) == 0


def test_interrupts_are_taken_where_they_were_ignored():
    code = (
        "import signal, time\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a script's background programs inherit it\n"
        "from dtlearn.runtime.machine.processes import take_interrupts\n"
        "take_interrupts()\n"
        "try:\n    signal.raise_signal(signal.SIGINT)\nexcept KeyboardInterrupt:\n    print('interrupted')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout == "interrupted\n"


def test_a_child_that_was_stopped_is_ended_if_that_is_asked():
    def work():
        wake = wake_at_ends()
        child = subprocess.Popen(["sleep", "60"])
        os.kill(child.pid, signal.SIGSTOP)
        ended = []
        while not ended:
            select.select([wake], [], [], 60)
            os.read(wake, 4096)
            ended = list(ended_children(end_stopped=True))
        return 0 if ended[0][:2] == (child.pid, signal.SIGKILL) else 1

    assert in_a_fork(work) == 0


def test_closed_standard_streams_are_filled_and_no_more():
    def work():
        os.close(0)
        os.close(2)
        fill_standard_streams()
        assert os.fstat(0).st_rdev == os.fstat(2).st_rdev == os.stat(os.devnull).st_rdev
        ends = os.pipe()
        assert min(ends) > 2
        fill_standard_streams()
        os.close(os.dup(ends[0]))
        return 0

    assert in_a_fork(work) == 0


def test_a_blocked_signal_of_ended_children_is_heard_all_the_same():
    def work():
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
        wake = wake_at_ends()
        if os.fork() == 0:
            os._exit(0)
        assert select.select([wake], [], [], 20)[0]
        return 0

    assert in_a_fork(work) == 0
