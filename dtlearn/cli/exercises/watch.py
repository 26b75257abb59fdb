"""`dtlearn watch`: grade an answer each time it is saved."""

import argparse
import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ...course import load_course
from ...grading.learner.exercise_files import files_of
from ...grading.learner.workplace import make_answers
from ..arguments import add_example_parser
from .grade import choose, grade_one

_EVERY = 0.3  # seconds between looks
_QUIET = 0.2  # seconds that a file must stay as it is: editors write in several steps

Stamp = tuple[int, int, int] | None  # of a file: what changes when it is written or replaced; None: there is none


def add_command(commands: Any) -> None:
    summary = "Grade an exercise each time its file is saved. Ctrl-C ends it."
    parser = add_example_parser(commands, "watch", summary, "dtlearn watch ch01.name", run)
    parser.add_argument("what", nargs="?", help="ch01.name, or ch01 (default: every exercise)")


def run(options: argparse.Namespace) -> int:
    """Watch until interrupted."""
    course = load_course()
    chosen = choose(course, options.what)
    with contextlib.suppress(OSError):  # then it is the stubs that are watched
        make_answers(course, chosen)
    by_file = {files_of(course, exercise).current: exercise for exercise in chosen}
    names = ", ".join(path.relative_to(course.root).as_posix() for path in by_file)
    try:
        print(f"watching {names}; Ctrl-C ends this", flush=True)
        for path in changes(list(by_file), at_once=len(by_file) == 1):
            if sys.stdout.isatty():
                print("\x1b[2J\x1b[H", end="")
            try:
                grade_one(course, by_file[path], None, None, may_colour=True)
            except ValueError as error:  # not Python's own text, say: the next save may mend it
                print(error, flush=True)
    except KeyboardInterrupt:
        print("\nno longer watching")
    return 0


def changes(paths: list[Path], at_once: bool, pause: Callable[[float], None] = time.sleep) -> Iterator[Path]:
    """Each file that was saved, when it has been left alone for a moment. For ever.

    What is saved while its last change is being dealt with comes next. A file may be missing for a while, as when an
    editor replaces it. `at_once`: yield those that are there first.
    """
    seen = {path: None if at_once else stamp(path) for path in paths}
    while True:
        for path in paths:
            now = stamp(path)
            if now is None or now == seen[path]:
                continue
            pause(_QUIET)
            while (later := stamp(path)) != now:
                now = later
                pause(_QUIET)
            if now is not None:
                seen[path] = now
                yield path
        pause(_EVERY)


def stamp(path: Path) -> Stamp:
    """What tells two states of a file apart."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
