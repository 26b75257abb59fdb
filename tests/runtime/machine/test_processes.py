import os
import subprocess
import sys

import pytest

from dtlearn.runtime.machine.processes import children, close_all_but, descendants, start_time, sweep

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


def test_a_sweep_ends_all_but_what_is_spared():
    def work():
        spared = subprocess.Popen(["sleep", "60"])
        ended = []
        other = subprocess.Popen(["sleep", "60"])
        left = sweep(lambda pid, status: ended.append(pid), spare=[spared.pid])
        alone = left == [] and ended == [other.pid] and start_time(spared.pid) is not None
        return 0 if alone and sweep() == [] and start_time(spared.pid) is None else 1

    assert in_a_fork(work) == 0


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
