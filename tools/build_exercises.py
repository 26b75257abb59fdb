"""Build exercises/<slug>/<name>.py from solutions/<slug>/<name>.py: the same file with the answer's regions blanked.

    python tools/build_exercises.py           write the stubs that are missing or out of date
    python tools/build_exercises.py --check   write nothing; verify that the stubs fit their solutions

A learner edits the files in exercises/, so a file there is somebody's work unless proved otherwise. It is a stub only
if it is what git's last commit holds, or what this tool wrote last (`.dtlearn/stubs.json` has the hashes). Any other
file is left alone and named.

For the same reason --check accepts a file that fits its solution in the last commit, whatever it holds now: `make
test` passes for a learner in the middle of the course. Where there is no git, as in a downloaded archive, an edited
file cannot be told from a stale one, and is accepted.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
from pathlib import Path

from dtlearn.course import load_course
from dtlearn.grading.learner.exercise_files import files_of
from dtlearn.grading.learner.stubs import stub_of
from dtlearn.runtime.machine.whole_file import write_whole

ROOT = Path(__file__).resolve().parent.parent
RECORD = Path(".dtlearn", "stubs.json")


def stubs(root: Path) -> dict[Path, str]:
    """The stub that belongs at each path. Raises ValueError for a solution that cannot be read or blanked."""
    course = load_course(root)
    made = {}
    for exercise in [e for chapter in course.chapters for e in chapter.exercises]:
        files = files_of(course, exercise)
        name = files.solution.relative_to(root).as_posix()
        try:
            text = files.solution.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"{exercise.id}: {name} cannot be read: {error}") from error
        made[files.stub] = stub_of(text, exercise.id, name)
    return made


def committed(root: Path, path: Path) -> str | None:
    """That file in git's last commit; None if it is not there or there is no git."""
    name = f"HEAD:./{path.relative_to(root).as_posix()}"
    try:
        shown = subprocess.run(["git", "show", name], cwd=root, capture_output=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return shown.stdout.decode("utf-8", "replace") if shown.returncode == 0 else None


def has_git(root: Path) -> bool:
    """Whether `root` lies in a git work tree with a commit."""
    try:
        return subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, timeout=30).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def build(root: Path) -> list[str]:
    """Write the stubs that are missing or out of date. Returns the files that were left alone, with the reason."""
    record, left = _read_record(root), []
    for path, stub in stubs(root).items():
        name = path.relative_to(root).as_posix()
        now = path.read_text(encoding="utf-8", errors="replace") if path.exists() else None
        if now is not None and now != stub and record.get(name) != _hash(now) and committed(root, path) != now:
            left.append(f"{name}: holds work, not the stub; left as it is (`dtlearn reset` keeps a copy)")
            continue
        if now != stub:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, stub, mode=0o666)
            print(f"{name}: written")
        record[name] = _hash(stub)
    (root / RECORD).parent.mkdir(exist_ok=True)
    write_whole(root / RECORD, json.dumps(record, indent=1) + "\n", mode=0o666)
    return left


def check(root: Path) -> list[str]:
    """The stubs that do not fit their solutions, as one line each."""
    found = []
    for path, stub in stubs(root).items():
        name = path.relative_to(root).as_posix()
        if not path.exists():
            found.append(f"{name}: missing; run make exercises")
        elif path.read_text(encoding="utf-8", errors="replace") != stub and committed(root, path) != stub:
            if has_git(root):
                found.append(
                    f"{name}: neither the file nor the last commit fits solutions/; run make exercises "
                    "(if the last commit holds your own answer, that is the reason)"
                )
            else:
                print(f"{name}: differs from the stub; without git it cannot be checked")
    return found


def _read_record(root: Path) -> dict[str, str]:
    try:
        data = json.loads((root / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def main(argv: list[str] | None = None, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(description="Build the exercises' stubs from the solutions.")
    parser.add_argument("--check", action="store_true", help="write nothing; verify the stubs")
    args = parser.parse_args(argv)
    try:
        found = check(root) if args.check else build(root)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if found:
        print("\n".join(found))
    elif args.check:
        print("exercises: all stubs fit their solutions")
    return 1 if found and args.check else 0


if __name__ == "__main__":
    sys.exit(main())
