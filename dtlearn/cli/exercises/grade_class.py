"""`dtlearn grade-class DIR`: grade what a class handed in."""

from __future__ import annotations

import argparse
import secrets
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

from ...runtime.machine.whole_file import write_new
from ..arguments import add_example_parser, positive

_GRADER_ERROR = 3


def add_command(commands: Any) -> None:
    from ...grading.report.learner_view import Level

    parser = add_example_parser(
        commands,
        "grade-class",
        "Grade what a class handed in: one folder or zip file per student. Writes feedback, gradebooks, a summary.",
        "dtlearn grade-class submissions/ --exercises ch01 --out results/",
        run,
    )
    parser.add_argument("folder", type=Path, help="the submissions")
    parser.add_argument(
        "--exercises", nargs="+", metavar="ID", help="chapters or exercises; default: all that are ready"
    )
    parser.add_argument("--out", type=Path, default=Path("results"), help="folder for the results (default: results)")
    parser.add_argument("--students", type=Path, help="CSV table: submission, student_id, last_name, ...")
    parser.add_argument("--hidden", type=Path, help="folder with further checks, <chapter>/<exercise>.py")
    parser.add_argument("--feedback", choices=get_args(Level), default="category", help="of hidden checks")
    parser.add_argument("--secret", type=Path, help="file that seeds come from; made if missing (default: OUT.secret)")
    parser.add_argument(
        "--workers", type=positive, default=0, help="submissions at once (default: the number of cores)"
    )
    parser.add_argument("--seconds", type=positive, default=120, help="for one exercise of one submission")
    again = parser.add_mutually_exclusive_group()
    again.add_argument("--only-failed", action="store_true", help="grade again what did not pass")
    again.add_argument("--again", action="store_true", help="grade everything again")
    parser.add_argument(
        "--trust-submissions", action="store_true", help="grade without namespaces: submissions run with your rights"
    )


def run(options: argparse.Namespace) -> int:
    from ...course import Exercise, load_course
    from ...grading.classroom.batch import Plan, grade_class, shut_in
    from ...checks import meanings
    from ...grading.classroom.export import export
    from ...grading.classroom.store import ResultStore
    from ...grading.classroom.submissions import find_submissions
    from ...grading.classroom.students import read_students, unknown
    from ...grading.classroom.summary import summary_console

    course = load_course()
    exercises: list[Exercise] = []
    for name in options.exercises or [c.slug for c in course.chapters if c.ready]:
        exercises += [course.exercise(name)] if "." in name else course.chapter(name).exercises
    if not exercises:
        raise ValueError("there is no exercise to grade in " + ", ".join(options.exercises or ["the course"]))
    submissions = find_submissions(options.folder, course, exercises)
    students = read_students(options.students.read_text("utf-8")) if options.students else {}
    if missing := unknown((s.student for s in submissions), students) if students else []:
        print(f"not in the table of students: {', '.join(missing)}", file=sys.stderr)
    secret = options.secret or options.out.with_name(options.out.name + ".secret")
    store = ResultStore(options.out)
    plan = Plan(
        course,
        exercises,
        read_secret(secret),
        hidden=options.hidden,
        isolation=shut_in(course, 1 if options.trust_submissions else 2, options.hidden, options.out, secret),
        workers=options.workers,
        seconds=options.seconds,
        only_failed=options.only_failed,
        again=options.again,
    )
    for submission in submissions:
        for problem in submission.problems:
            print(f"{submission.student}: {problem}", file=sys.stderr)
    begun = time.monotonic()
    try:
        verdicts = grade_class(plan, submissions, store, _report)
    except KeyboardInterrupt:
        print(f"\nstopped; what was graded is in {options.out}: the same command goes on from there", file=sys.stderr)
        raise
    summary = export(options.out, verdicts, students, options.feedback, datetime.now(UTC), meanings())
    print(f"\n{summary_console(summary)}\n{len(submissions)} submissions in {time.monotonic() - begun:.0f} s; ", end="")
    print(f"feedback, gradebooks and summary are in {options.out}")
    return _GRADER_ERROR if summary.needs_a_person else 0


def read_secret(path: Path) -> bytes:
    """The secret of a class, made at first use, for its owner's eyes only. Raises ValueError if it cannot be had."""
    try:
        if not path.exists():
            write_new(path, secrets.token_hex(32))
        text = path.read_bytes().strip()
    except OSError as error:
        raise ValueError(
            f"the secret {path} cannot be read or made: {error.strerror}; choose another --secret"
        ) from error
    if len(text) < 16:
        raise ValueError(f"{path} holds no secret: it needs at least 16 bytes; delete it to have one made")
    return text


def _report(student: str, verdict: Any, done: int, total: int) -> None:
    what = f"{verdict.state} {verdict.code}".rstrip()
    print(f"{done:>{len(str(total))}} of {total}  {student[:30]:<30} {verdict.exercise:<28} {what}", flush=True)
