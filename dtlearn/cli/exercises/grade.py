"""`dtlearn grade`: grade exercises from the terminal. This process never runs an answer; the ranks do."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...bench.status_line import show_line
from ...course import Course, Exercise, load_course
from ...grading.classroom.gradescope import gradescope
from ...grading.report.console import console, wants_colour
from ...grading.report.console import progress as progress_line
from ...grading.report.html import html, page
from ...grading.report.junit import junit
from ...grading.verdict import Result, Verdict
from ...runtime.errors import LaunchError
from ...runtime.machine.whole_file import write_whole
from ..arguments import add_example_parser, existing_folder_of

if TYPE_CHECKING:
    from ...grading.judging.own_runs import OwnRuns

PASSED, NOT_PASSED, GRADER_ERROR = 0, 1, 3


def _json(verdicts: Sequence[Verdict]) -> str:
    return json.dumps([json.loads(v.to_json()) for v in verdicts], indent=1) + "\n"


def _html(verdicts: Sequence[Verdict]) -> str:
    return page("dtlearn grade", map(html, verdicts))


# The files that it writes. For each format: words for the option's help, and what makes the text.
FORMATS: dict[str, tuple[str, Callable[[Sequence[Verdict]], str]]] = {
    "json": ("write a list of verdicts, as the schema verdict-1.json says", _json),
    "junit": ("write JUnit XML, for continuous integration", junit),
    "gradescope": ("write Gradescope's results.json", gradescope),
    "html": ("write a page", _html),
}


def add_command(commands: Any) -> None:
    parser = add_example_parser(
        commands,
        "grade",
        "Grade an exercise, a chapter, or everything. Ends with 0 if all passed, 1 if not, 3 if the grader failed.",
        "dtlearn grade ch01 --json verdicts.json",
        run,
    )
    parser.add_argument("what", nargs="?", help="ch01.name or ch01 (default: every exercise)")
    parser.add_argument("--file", type=Path, help="the answer, if it is not in work/; needs one exercise")
    parser.add_argument("--seed", type=int, help="of the inputs, to repeat what a report shows")
    for name, (words, _) in FORMATS.items():
        parser.add_argument(f"--{name}", type=existing_folder_of, metavar="FILE", help=words)
    parser.add_argument(
        "--picture", type=existing_folder_of, metavar="FILE", help="draw the run that failed, or the largest, as SVG"
    )
    parser.add_argument("--no-color", action="store_true", help="plain text on a terminal too")


def run(options: argparse.Namespace) -> int:
    """Grade what the options name; print and write the reports."""
    course = load_course()
    chosen = choose(course, options.what)
    if options.file and len(chosen) != 1:
        raise ValueError("--file is one answer: name its exercise, such as dtlearn grade ch01.name --file answer.py")
    if options.picture and len(chosen) != 1:
        raise ValueError(
            "--picture draws one run: name its exercise, such as dtlearn grade ch01.name --picture run.svg"
        )
    verdicts = []
    for exercise in chosen:
        verdict = grade_one(course, exercise, options.file, options.seed, not options.no_color, options.picture)
        if verdict is None:
            return GRADER_ERROR
        verdicts.append(verdict)
    write_reports(verdicts, {name: getattr(options, name) for name in FORMATS})
    if len(verdicts) > 1:
        print(summary(verdicts))
    if any(v.state == "error" for v in verdicts):
        return GRADER_ERROR
    return PASSED if all(v.passed for v in verdicts) else NOT_PASSED


def choose(course: Course, what: str | None) -> list[Exercise]:
    """The exercises of "ch01.name", of "ch01" or "ch01_ranks", or all. Raises ValueError if there are none."""
    if what and "." in what:
        return [course.exercise(what)]
    chapters = [course.chapter(what)] if what else course.chapters
    exercises = [exercise for chapter in chapters for exercise in chapter.exercises]
    if not exercises:
        raise ValueError(f"{chapters[0].slug if what else 'the course'} has no exercises yet")
    return exercises


def grade_one(
    course: Course,
    exercise: Exercise,
    file: Path | None,
    seed: int | None,
    may_colour: bool,
    picture: Path | None = None,
) -> Verdict | None:
    """Grade one exercise, print its report, draw its run. None, and a message, if the grader could not start."""
    from ...grading.learner.grade_file import grade_file
    from ...grading.learner.workplace import make_answers

    runs = None
    if picture:
        from ...grading.judging.own_runs import OwnRuns  # here, as it loads torch

        runs = OwnRuns()

    def progress(result: Result, done: int, total: int) -> None:
        show_line(progress_line(result, done, total))

    with contextlib.suppress(OSError):  # where nothing can be written the stub is graded
        make_answers(course, [exercise])
    try:
        verdict = grade_file(course, exercise, file, seed=seed, progress=progress, runs=runs)
    except LaunchError as error:
        print(f"dtlearn grade: {error}", file=sys.stderr)
        return None
    finally:
        show_line("")
    print(console(verdict, colour=may_colour and wants_colour(sys.stdout, os.environ)), flush=True)
    if picture and runs:
        print(_draw(course, exercise, verdict, runs, picture))
    return verdict


def _draw(course: Course, exercise: Exercise, verdict: Verdict, runs: OwnRuns, file: Path) -> str:
    """Write the picture of a graded run. Returns a sentence, and the same run as text."""
    from ...grading.learner.grade_file import own_run
    from ...grading.report.own_run import picture, text, title
    from ...viz.picture import save_svg

    run = own_run(course, exercise, verdict, runs)
    if run is None:
        return f"{file} was not written: no rank called anything that could be drawn"
    drawn = picture(run)
    try:
        save_svg(drawn.figure, file, title(run), drawn.alt)
    except OSError as error:
        return f"{file} was not written: {error.strerror or error}"
    return f"\n{text(run)}\nDrawn in {file}"


def summary(verdicts: Sequence[Verdict]) -> str:
    """How many passed, in one line."""
    passed = sum(v.passed for v in verdicts)
    score, points = sum(v.score for v in verdicts), sum(v.points for v in verdicts)
    return f"{passed} of {len(verdicts)} exercises passed, {score:g} of {points:g} points"


def write_reports(verdicts: Sequence[Verdict], files: Mapping[str, Path | None]) -> None:
    """Write the reports that were asked for, by format. Raises ValueError if a file cannot be written."""
    for name, path in files.items():
        if path is None:
            continue
        try:
            write_whole(path.absolute(), FORMATS[name][1](verdicts))
        except OSError as error:
            raise ValueError(f"--{name}: {path} cannot be written: {error.strerror or error}") from error
