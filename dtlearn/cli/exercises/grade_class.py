"""`dtlearn grade-class DIR`: grade what a class handed in."""

from __future__ import annotations

import argparse
import secrets
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from ...grading.report.safe import one_line
from ...runtime.machine.patience import TO_GRADE
from ...runtime.machine.whole_file import write_new, write_whole
from ...runtime.words import counted
from ..arguments import add_example_parser, part, positive

if TYPE_CHECKING:
    from ...course import Course, Exercise
    from ...grading.classroom.batch import ClassPlan
    from ...grading.classroom.reading.layouts import HandIn
    from ...grading.classroom.store import ResultStore
    from ...grading.classroom.submissions import Submission
    from ...grading.verdict import Verdict

_NOT_ALL_GRADED = 3
# What says how answers are graded, which --merge does not.
_OF_GRADING = ("hidden", "secret", "workers", "seconds", "only_failed", "again", "trust_submissions")


def add_command(commands: Any) -> None:
    from ...grading.report.learner_view import FeedbackLevel

    parser = add_example_parser(
        commands,
        "grade-class",
        "Grade what a class handed in: one folder, zip or tar file per student. Writes feedback, gradebooks, a "
        "summary, and which answers are alike. Stopped, the same command goes on. Exit status: 0, all graded; 2, wrong "
        "use; 3, something was not graded or not read, and the summary says what and what to do. For a class that one "
        "machine cannot grade: --part, and then --merge. See docs/instructor.md.",
        "dtlearn grade-class submissions/ --exercises ch01 --students students.csv --rules rules.toml --out results/",
        run,
    )
    parser.add_argument("folder", type=Path, help="the submissions")
    parser.add_argument("--exercises", nargs="+", metavar="ID", help="chapters or exercises; default: all ready ones")
    parser.add_argument("--out", type=Path, default=Path("results"), help="folder for the results (default: results)")
    parser.add_argument("--students", type=Path, help="CSV table: submission, student_id, last_name, ...")
    parser.add_argument("--rules", type=Path, help="TOML: due dates, lateness, resubmissions, names of columns")
    parser.add_argument("--hidden", type=Path, help="folder with further checks, <chapter>/<exercise>.py")
    parser.add_argument("--feedback", choices=get_args(FeedbackLevel), default="category", help="of hidden checks")
    parser.add_argument("--secret", type=Path, help="file that seeds come from; made if missing (default: OUT.secret)")
    parser.add_argument("--workers", type=positive, default=0, help="submissions at once (default: number of cores)")
    parser.add_argument("--seconds", type=positive, default=TO_GRADE, help="for one exercise of one submission")
    parts = parser.add_mutually_exclusive_group()
    parts.add_argument("--part", type=part, metavar="K/N", help="grade the K-th of N parts of the class, and no more")
    help_ = "grade nothing: the class is what these folders, --out of all its parts, hold"
    parts.add_argument("--merge", type=Path, nargs="+", metavar="PART", help=help_)
    again = parser.add_mutually_exclusive_group()
    again.add_argument("--only-failed", action="store_true", help="grade again what did not pass")
    again.add_argument("--again", action="store_true", help="grade everything again")
    help_ = "grade without namespaces: submissions run with your rights"
    parser.add_argument("--trust-submissions", action="store_true", help=help_)


def run(options: argparse.Namespace) -> int:
    from ...checks import meanings
    from ...course import load_course
    from ...grading.classroom.class_rules import Rules, read_rules, settle
    from ...grading.classroom.export import export
    from ...grading.classroom.gradebook import csv_text
    from ...grading.classroom.parts.merge import merge, stores_of_parts
    from ...grading.classroom.parts.record import how_graded
    from ...grading.classroom.parts.split import split
    from ...grading.classroom.reading.layouts import student_of_entry
    from ...grading.classroom.similarity import HEADER, alike_in_class
    from ...grading.classroom.store import ResultStore
    from ...grading.classroom.students import read_students, student_of
    from ...grading.classroom.submissions import Submission, find_hand_ins, read_submissions
    from ...grading.classroom.summary import summary_console
    from ...runtime.machine.patience import crowding

    course = load_course()
    exercises: list[Exercise] = []
    for name in options.exercises or [c.slug for c in course.chapters if c.ready]:
        exercises += [course.exercise(name)] if "." in name else course.chapter(name).exercises
    if not exercises:
        raise ValueError("there is no exercise to grade in " + ", ".join(options.exercises or ["the course"]))
    students = read_students(options.students.read_text("utf-8")) if options.students else {}
    rules = read_rules(options.rules.read_text("utf-8"), [e.id for e in exercises]) if options.rules else Rules()
    accounts: list[str] = []
    found = find_hand_ins(options.folder, course, exercises, accounts)
    known = {one.student for one in found}
    students = {name if name in known else student_of_entry(name): who for name, who in students.items()}

    def who(name: str) -> str:
        return student_of(name, students).student_id

    def shares(of: int) -> list[list[HandIn]]:
        return split(found, of, who=who, older_too=rules.best)

    if options.part:
        number, of = options.part
        share = shares(of)[number - 1]
        submissions, _ = rules.to_grade(read_submissions(share, course, exercises), who)
        return _grade_part(options, course, exercises, submissions, share)
    stores: dict[str, ResultStore] = {}
    if options.merge:
        _check_merge(options)
        stores = stores_of_parts(options.merge, how_graded(course, exercises), shares, who)
    hand_ins = read_submissions(found, course, exercises)
    submissions, decided = rules.to_grade(hand_ins, who)
    present = {who(s.student) for s in submissions}
    absent = [name for name, student in students.items() if student.student_id not in present]
    submissions += [Submission(name) for name in absent]
    accounts += decided
    if missing := sorted({s.student for s in hand_ins} - students.keys()) if students else []:
        accounts.append(f"not in the table of students: {', '.join(one_line(name, 80) for name in missing)}")
    if absent:
        accounts.append(f"nothing from: {', '.join(one_line(name, 80) for name in absent)}")
    accounts += [f"{one_line(s.student, 80)}: {problem}" for s in submissions for problem in s.problems]
    if unread := sorted({one_line(s.student.partition("/")[0], 80) for s in submissions if s.unread}):
        accounts.insert(0, f"handed in and not read, whole or in part (exit status 3): {', '.join(unread)}")
    store = ResultStore(options.out)
    begun = time.monotonic()
    if options.merge:
        verdicts = merge(exercises, submissions, stores, who, store)
    else:
        verdicts = _grade(options, _plan(options, course, exercises), submissions, store, accounts)
    alike = alike_in_class(course, exercises, submissions)
    write_whole(options.out / "similarity.csv", csv_text([HEADER, *alike]))
    if alike:
        pairs = counted(len(alike), "pair")
        accounts.append(f"answers that are alike: {pairs}, in similarity.csv; read both before you judge")
    counts, penalties, times = settle(rules, submissions, verdicts)
    how = (options.feedback, datetime.now(UTC), meanings())
    summary = export(options.out, counts, students, *how, rules, penalties, times, accounts)
    how_many = counted(len(submissions), "submission")
    print(f"\n{summary_console(summary)}\n{_memory(submissions, verdicts)}\n{how_many} ", end="")
    print(f"{'merged' if options.merge else ''} in {time.monotonic() - begun:.0f} s, ".lstrip(), end="")
    print(f"with {crowding():.1f} programs for each processor in the last minute (time limits follow that); ", end="")
    print(f"feedback, gradebooks and summary are in {options.out}")
    loose = any(": a loose file, not graded" in line for line in accounts)
    return _NOT_ALL_GRADED if summary.needs_a_person or loose or unread else 0


def _check_merge(options: argparse.Namespace) -> None:
    given = [name for name in _OF_GRADING if getattr(options, name) not in (None, False, 0, TO_GRADE)]
    if given:
        raise ValueError(f"--merge grades nothing: leave out --{given[0].replace('_', '-')}")
    if options.out.resolve() in {folder.resolve() for folder in options.merge}:
        raise ValueError(f"{options.out} is one of the parts: choose another --out for the whole class")


def _plan(options: argparse.Namespace, course: Course, exercises: Sequence[Exercise]) -> ClassPlan:
    from ...grading.classroom.batch import ClassPlan, shut_in

    secret = options.secret or options.out.with_name(options.out.name + ".secret")
    level = 1 if options.trust_submissions else 2
    return ClassPlan(
        course,
        exercises,
        read_secret(secret),
        isolation=shut_in(course, level, options.folder, options.hidden, options.out, secret),
        **{name: getattr(options, name) for name in ("hidden", "workers", "seconds", "only_failed", "again")},
    )


def _grade(
    options: argparse.Namespace,
    plan: ClassPlan,
    submissions: Sequence[Submission],
    store: ResultStore,
    accounts: Sequence[str],
) -> dict[str, list[Verdict]]:
    from ...grading.classroom.batch import grade_class

    for line in accounts:
        print(line, file=sys.stderr)
    try:
        return grade_class(plan, submissions, store, _Report())
    except KeyboardInterrupt:
        print(f"\nstopped; what was graded is in {options.out}: the same command goes on from there", file=sys.stderr)
        raise


def _grade_part(
    options: argparse.Namespace,
    course: Course,
    exercises: Sequence[Exercise],
    submissions: Sequence[Submission],
    share: Sequence[HandIn],
) -> int:
    """Grade a part of the class: verdicts, and that it is done."""
    from ...grading.classroom.parts.record import Part, entries, forget, how_graded
    from ...grading.classroom.store import ResultStore

    number, of = options.part
    if options.secret is None:
        raise ValueError("--part needs --secret FILE, the same file for all parts: seeds come from it")
    store = ResultStore(options.out)
    forget(options.out)
    plan = _plan(options, course, exercises)
    done = Part(number, of, how_graded(course, exercises, plan), entries(share), options.out)
    verdicts = _grade(options, plan, submissions, store, ())
    done.save()
    left = sorted({one_line(who, 80) for who, graded in verdicts.items() for v in graded if not v.final})
    print(f"\n{_memory(submissions, verdicts)}" if submissions else "")
    print(f"part {number} of {of}: {counted(len(submissions), 'submission')}, in {options.out}")
    if left:
        print(f"not graded, or not whole: {', '.join(left)}; the same command grades them again")
    return _NOT_ALL_GRADED if left else 0


def _memory(submissions: Sequence[Submission], verdicts: Mapping[str, Sequence[Verdict]]) -> str:
    most, who, what = max((v.memory, who, v.exercise) for who, graded in verdicts.items() for v in graded)
    read, whose = max((s.memory, s.student) for s in submissions)
    taken = f"memory: grading an answer took up to {most >> 20:,} MiB ({one_line(who, 80)}, {what}), "
    return f"{taken}reading a hand-in up to {read >> 20:,} MiB ({one_line(whose, 80)})"


def read_secret(path: Path) -> bytes:
    """The secret of a class, made at first use, for its owner's eyes only. Raises ValueError if it cannot be had."""
    try:
        if not path.exists():
            write_new(path, secrets.token_hex(32))
        text = path.read_bytes().strip()
    except OSError as error:
        why = f"cannot be read or made: {error.strerror}"
        raise ValueError(f"the secret {path} {why}; choose another --secret") from error
    if len(text) < 16:
        raise ValueError(f"{path} holds no secret: it needs at least 16 bytes; delete it to have one made")
    return text


class _Report:
    """A line for each verdict, with the time that the rest will take at the pace of the last ones."""

    def __init__(self) -> None:
        self._times = deque([time.monotonic()], maxlen=40)

    def __call__(self, student: str, verdict: Any, done: int, total: int) -> None:
        self._times.append(time.monotonic())
        left = (self._times[-1] - self._times[0]) / (len(self._times) - 1) * (total - done)
        what = f"{verdict.state} {verdict.code}".rstrip()
        rest = f"about {left / 60:.0f} min left" if left > 90 else f"about {left:.0f} s left" if done < total else ""
        position, name = f"{done:>{len(str(total))}} of {total}", one_line(student, 80)[:30]
        print(f"{position}  {name:<30} {verdict.exercise:<28} {what:<28} {rest}".rstrip(), flush=True)
