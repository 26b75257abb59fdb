"""Run tests and notebooks, some files at once. What fails is run once more, alone; what fails twice, fails.

Most tests start real ranks, and some wait for a time limit: on a machine that others use too, one in thousands can miss
it. Such a test is named at the end ("passed only alone"), so that it is mended and not forgotten. More failures than a
few are never chance, and are not tried again. A table says what each part of the suite took.

python tools/run_tests.py [pytest's options and paths, instead of all but those for `make test-all`]
python tools/run_tests.py --without-notebooks    slow tests too, and no notebook: `make test-all` runs those otherwise
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from seconds_by_part import chapters, read, table

ROOT = Path(__file__).resolve().parent.parent
# What is left out here is run by the other steps of `make test-all`.
LEFT_OUT = "not every_answer and not whole_grid and not every_device and not whole_ladder"
TESTS = ["tests", "-m", LEFT_OUT]
NOTEBOOKS = ["notebooks", "--nbval", "--nbval-current-env", "-p", "tests.quick_start", "-p", "tests.kernel_sockets"]
ALL = ["tests", "-m", f"{LEFT_OUT} and not slow", *NOTEBOOKS]
# Two more than there are processors: on two processors all tests took 850 s so, and 945 s with one more (both before
# they took turns, see below). With three more the same tests needed more processor time (0, 5 and 28 % in three
# measurements): a test is several ranks. tests/conftest.py puts long files first, so that all workers end at nearly
# the same time.
AT_ONCE = min((os.cpu_count() or 1) + 2, 8)
SIDE_BY_SIDE = ["-n", str(AT_ONCE), "--dist", "loadfile", "--no-loadscope-reorder"]
MOST_TRIED_AGAIN = 10
_SOME_FAILED = 1  # pytest's exit status


def pytest(arguments: list[str], folder: Path) -> int:
    """Run pytest in a folder; its exit status."""
    # Containers often forbid compiled files. Hundreds of interpreters, which the tests start, would each compile the
    # package, and each worker all tests, with their asserts rewritten: 8 s of processor time.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-m", "pytest", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, check=False).returncode


def timed_pytest(arguments: list[str], folder: Path) -> int:
    """Run pytest as `pytest` does, and print what each part took."""
    with tempfile.TemporaryDirectory() as scratch:
        junit, begun = Path(scratch) / "junit.xml", time.monotonic()
        status = pytest([*arguments, "--junitxml", str(junit)], folder)
        if junit.is_file():
            print(f"\n== {time.monotonic() - begun:.0f} s; by part, added up over what ran at once:")
            print(table(read(junit), chapters(folder)), flush=True)
    return status


def failed_tests(folder: Path) -> list[str]:
    """What failed in the latest run: ids of tests; of a notebook, whose cells need one another, its file."""
    try:
        ids = json.loads((folder / ".pytest_cache/v/cache/lastfailed").read_text("utf-8"))
    except FileNotFoundError:
        return []
    return sorted({name.partition("::")[0] if ".ipynb" in name else name for name in ids})


def take_turns() -> None:
    """Let processes that awake wait for their turn (Linux): this one, and all that it starts from now on.

    Usually they get the processor at once. Often that is the one of a rank that holds a lock of gloo's, and until it
    goes on another thread of it asks for that lock again and again. All tests took 716 s so, and 907 s without.
    """
    if hasattr(os, "SCHED_BATCH"):
        with contextlib.suppress(PermissionError):  # a container that forbids it: the tests take longer
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def main(arguments: list[str], folder: Path = ROOT) -> int:
    """Run; try again what failed; say so. The exit status is that of the second try, if there was one."""
    # What an interrupted run left there is not this run's.
    (folder / ".pytest_cache/v/cache/lastfailed").unlink(missing_ok=True)
    chosen = TESTS if arguments == ["--without-notebooks"] else arguments or ALL
    status = timed_pytest([*chosen, *SIDE_BY_SIDE], folder)
    failed = failed_tests(folder) if status == _SOME_FAILED else []
    if not failed or len(failed) > MOST_TRIED_AGAIN:
        return status
    print(f"\n== {len(failed)} failed. Once more, alone:", *failed, sep="\n", flush=True)
    options = ["--nbval", "--nbval-current-env"] if any(name.endswith(".ipynb") for name in failed) else []
    status = pytest([*failed, *options], folder)
    if status == 0:
        print("\n== Passed only alone, so they depend on the load of the machine; mend them:", *failed, sep="\n")
    return status


if __name__ == "__main__":
    # Ignored where a script started us in the background, and then by all our children; tests interrupt some of them.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    take_turns()
    sys.exit(main(sys.argv[1:]))
