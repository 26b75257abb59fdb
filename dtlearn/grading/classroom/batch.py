"""Grades the submissions of a class, several at once, each on its own ranks.

No submission can stop the others: every one has its time limit, and a fault of the grader in one of them is that
submission's "error", listed for a person. What is done is on disk, so a batch that was cut short goes on where it was.
"""

from __future__ import annotations

import hmac
import os
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path

from ...course import Course, Exercise
from ...runtime.machine.isolation import Isolation, best
from ..check import Check
from ..judging.grade import Answer, grade
from ..learner.exercise_files import checks_folder, find_check
from ..verdict import Result, Verdict
from .store import ResultStore
from .submissions import Submission

Report = Callable[[str, Verdict, int, int], None]  # a student, a verdict, how many are done, of how many


@dataclass(frozen=True)
class Plan:
    """How a class is graded.

    Attributes:
        secret: seeds of all inputs come from it, so that they cannot be known before; the same for all students.
        hidden: folder of further checks, or None.
        isolation: how the ranks of a submission are shut in; see `shut_in`.
        workers: submissions at once.
        seconds: for one exercise of one submission.
        only_failed: grade again what did not pass; keep what passed.
        again: grade everything again.
    """

    course: Course
    exercises: Sequence[Exercise]
    secret: bytes
    hidden: Path | None = None
    isolation: Isolation = field(default_factory=Isolation)
    workers: int = 0
    seconds: float = 120.0
    only_failed: bool = False
    again: bool = False

    def seed(self, exercise: Exercise) -> int:
        digest = hmac.new(self.secret, exercise.id.encode(), "sha256").digest()
        return int.from_bytes(digest[:4], "big") >> 1

    def checks(self, exercise: Exercise) -> list[tuple[Check, bool]]:
        """The public check and, if there is one, the hidden one. Raises ValueError if the public one is missing."""
        found = [(find_check(self.course, exercise), False)]
        if self.hidden is not None:
            name = self.hidden / self.course.chapter(exercise.id.partition(".")[0]).slug / f"{exercise.name}.py"
            if name.is_file():
                found.append((find_check(self.course, exercise, self.hidden), True))
        return found


def shut_in(course: Course, level: int, *more: Path | None) -> Isolation:
    """The isolation of submissions: at level 2 they cannot see solutions, checks, tests, and what `more` names.

    Raises:
        ValueError: level 2 is asked for, and this machine refuses it.
    """
    allowed = best(level)
    if allowed.level < level:
        raise ValueError(
            f"isolation level {level} is refused on this machine, and a class should not be graded at level "
            f"{allowed.level}: submissions would run with your rights. `dtlearn doctor` says why. "
            "If you trust every one of them: --trust-submissions"
        )
    if level < 2:
        return allowed
    checks = (checks_folder(course), Path(__file__).parents[2] / "checks")  # one folder, unless dtlearn is elsewhere
    paths = [course.root / "solutions", course.root / "tests", course.root / ".dtlearn", *checks, *more]
    hidden = dict.fromkeys(str(p.resolve()) for p in paths if p is not None and p.exists())
    return Isolation(2, hidden=tuple(hidden))


def grade_class(
    plan: Plan, submissions: Sequence[Submission], store: ResultStore, report: Report = lambda *_: None
) -> dict[str, list[Verdict]]:
    """Grade all; returns `{student: verdicts, in the order of the exercises}`.

    KeyboardInterrupt stops: what is running is ended and not kept, what is done stays.
    """
    checks = {e.id: plan.checks(e) for e in plan.exercises}  # a missing check must fail now, not for every student
    jobs = [(s, e) for s in submissions for e in plan.exercises]
    verdicts: dict[tuple[str, str], Verdict] = {}
    stop = threading.Event()
    pool = ThreadPoolExecutor(plan.workers or max(1, (os.cpu_count() or 2)), thread_name_prefix="grade")
    try:
        running: dict[Future[Verdict], tuple[Submission, Exercise]] = {
            pool.submit(_one, plan, checks[e.id], s, e, store, stop): (s, e) for s, e in jobs
        }
        waiting = set(running)
        while waiting:
            done, waiting = wait(waiting, timeout=0.5, return_when=FIRST_COMPLETED)
            for future in done:
                submission, exercise = running[future]
                verdicts[submission.student, exercise.id] = verdict = future.result()
                report(submission.student, verdict, len(verdicts), len(jobs))
    except BaseException:
        stop.set()
        pool.shutdown(wait=True, cancel_futures=True)
        raise
    pool.shutdown()
    return {s.student: [verdicts[s.student, e.id] for e in plan.exercises] for s in submissions}


def _one(
    plan: Plan,
    checks: Sequence[tuple[Check, bool]],
    submission: Submission,
    exercise: Exercise,
    store: ResultStore,
    stop: threading.Event,
) -> Verdict:
    source = submission.answers.get(exercise.id)
    if source is None:
        return submission.without_answer(exercise)
    old = None if plan.again else store.load(submission.student, exercise.id, source)
    if old is not None and old.state != "error" and (old.passed or not plan.only_failed):
        return old
    answer = Answer(source, submission.files[exercise.id], exercise.name)
    verdict = _grade(plan, checks, exercise, answer, stop)
    if verdict.state == "error" and not stop.is_set():  # another submission may have broken what they share: once more
        time.sleep(0.5)
        verdict = _grade(plan, checks, exercise, answer, stop)
    if not stop.is_set():
        store.save(submission.student, verdict, source)
    return verdict


def _grade(
    plan: Plan, checks: Sequence[tuple[Check, bool]], exercise: Exercise, answer: Answer, stop: threading.Event
) -> Verdict:
    try:
        seed, seconds = plan.seed(exercise), plan.seconds
        return grade(exercise, checks, answer, seed=seed, seconds=seconds, stop=stop.is_set, isolation=plan.isolation)
    except Exception as error:  # ours: this student's result is for a person to look at, and the batch goes on
        text = f"the grader failed: {type(error).__name__}: {error}"
        result = Result("", 0, "error", "DTL-GRADER", text, tuple(traceback.format_exc().splitlines()[-8:]))
        return Verdict(exercise.id, exercise.title, "error", 0.0, exercise.points, results=(result,))
