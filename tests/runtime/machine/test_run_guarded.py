"""A guarded command: its exit code, and that nothing of it outlives the end of the guard's standard input."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dtlearn.runtime.machine.processes import descendants

REAL_STARTS = True  # how soon a guard ends is the question

# A command, its child in a session of its own, and a grandchild that has lost its parent; prints their numbers.
FAMILY = """
import os, subprocess, sys, time
sleep = [sys.executable, "-c", "import time; time.sleep(300)"]
child = subprocess.Popen(sleep, start_new_session=True)
lost = int(subprocess.run(
    [sys.executable, "-c", f"import subprocess; print(subprocess.Popen({sleep}, start_new_session=True, "
     "stdout=subprocess.DEVNULL).pid)"], stdout=subprocess.PIPE, text=True).stdout)
print(os.getpid(), child.pid, lost, flush=True)
"""


def guard(*command: str, **options) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "dtlearn.runtime.machine.run_guarded", *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        **options,
    )


def python(code: str) -> subprocess.Popen:
    return guard(sys.executable, "-c", code)


def lives(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    try:
        return stat.read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:  # it may end between the two looks of the kernel, too
        return False


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("pass", 0),
        ("raise SystemExit(3)", 3),
        ("import os; os.kill(os.getpid(), 9)", 128 + 9),
    ],
)
def test_the_commands_exit_code_is_the_guards(code, expected):
    with python(code) as process:
        assert process.wait(10) == expected


def test_output_passes_through_and_input_does_not():
    with python("print(open(0).read(), 'out')") as process:
        process.stdin.write("for the guard only\n")
        process.stdin.flush()
        assert process.stdout.read() == " out\n"
        assert process.wait(10) == 0


@pytest.mark.parametrize("ignores", [False, True], ids=["", "one that ignores SIGTERM"])
def test_closing_the_input_ends_the_whole_family(ignores):
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" if ignores else ""
    with python(deaf + FAMILY + "time.sleep(300)") as process:
        family = [int(pid) for pid in process.stdout.readline().split()]
        assert len(family) == 3 and all(map(lives, family))
        assert set(family) <= set(descendants(process.pid))
        begun = time.monotonic()
        process.stdin.close()
        assert process.wait(10) == 124
        assert time.monotonic() - begun < (5 if ignores else 2)
        assert not any(map(lives, family))


def test_the_end_of_the_asker_closes_the_input_however_it_ends():
    # The asker holds the only end of the pipe; it is killed.
    asker = f"""
import subprocess, sys, time
GUARD = "dtlearn.runtime.machine.run_guarded"
subprocess.Popen([sys.executable, "-m", GUARD, sys.executable, "-c", {FAMILY + "time.sleep(300)"!r}],
                 stdin=subprocess.PIPE, start_new_session=True)
time.sleep(300)
"""
    with subprocess.Popen([sys.executable, "-c", asker], stdout=subprocess.PIPE, text=True) as process:
        family = [int(pid) for pid in process.stdout.readline().split()]
        process.send_signal(signal.SIGKILL)
        deadline = time.monotonic() + 3
        while any(map(lives, family)) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not any(map(lives, family))


def test_what_a_command_leaves_behind_ends_with_it():
    with python(FAMILY) as process:
        family = [int(pid) for pid in process.stdout.readline().split()]
        assert process.wait(10) == 0
        assert not any(map(lives, family))


def test_a_command_that_does_not_exist_is_an_error():
    with guard("/no/such/command", stderr=subprocess.PIPE) as process:
        assert "/no/such/command" in process.stderr.read()
        assert process.wait(10) == 1


def test_what_it_runs_can_be_interrupted_also_where_a_script_started_all_of_it_in_the_background():
    code = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    command = [sys.executable, "-m", "dtlearn.runtime.machine.run_guarded", sys.executable, "-c", code]
    ignoring = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *command]
    with subprocess.Popen(ignoring, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as guard:
        assert guard.stdout.read() == "True\n"
