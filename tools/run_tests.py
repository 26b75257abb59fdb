"""Run all tests and notebooks, two files at once. What fails is run once more, alone; what fails twice, fails.

Most tests start real ranks, and some wait for a time limit: on a machine that others use too, one in thousands can miss
it. Such a test is named at the end ("passed only alone"), so that it is mended and not forgotten. More failures than a
few are never chance, and are not tried again.

python tools/run_tests.py [pytest's options and paths, instead of all]
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ALL = ["tests", "notebooks", "--nbval", "--nbval-current-env"]
MOST_TRIED_AGAIN = 10
_SOME_FAILED = 1  # pytest's exit status


def pytest(arguments: list[str], folder: Path) -> int:
    """Run pytest in a folder; its exit status."""
    return subprocess.run([sys.executable, "-m", "pytest", *arguments], cwd=folder, check=False).returncode


def failed_tests(folder: Path) -> list[str]:
    """What failed in the latest run: ids of tests; of a notebook, whose cells need one another, its file."""
    try:
        ids = json.loads((folder / ".pytest_cache/v/cache/lastfailed").read_text("utf-8"))
    except FileNotFoundError:
        return []
    return sorted({name.partition("::")[0] if ".ipynb" in name else name for name in ids})


def main(arguments: list[str], folder: Path = ROOT) -> int:
    """Run; try again what failed; say so. The exit status is that of the second try, if there was one."""
    # What an interrupted run left there is not this run's.
    (folder / ".pytest_cache/v/cache/lastfailed").unlink(missing_ok=True)
    status = pytest([*(arguments or ALL), "-n", "2", "--dist", "loadfile"], folder)
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
    sys.exit(main(sys.argv[1:]))
