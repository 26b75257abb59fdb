"""Grades the submissions of a class, several at once, each in a process of its own and on its own ranks.

No submission can stop the others: what reads, compiles, runs and judges it is a process with limits of its own, whose
end is that submission's alone; a fault of the grader in one of them is its "error", listed for a person. What is done
is on disk, so a batch that was cut short goes on where it was.
"""

import hmac
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from ...course import Course, Exercise
from ...runtime.machine.cores import num_cores
from ...runtime.machine.isolation import Isolation, best
from ...runtime.machine.patience import TO_GRADE, TO_READ_AN_ANSWER
from ..grader_process.client import Graders
from ..judging.run_case import Answer
from ..learner.exercise_files import find_checks
from ..verdict import Result, Verdict
from .store import ResultStore
from .submissions import Submission

_OF_PYTHON = ("bin", "include", "lib", "lib64", "pyvenv.cfg")  # in its prefix, which may be somebody's home
OnVerdict = Callable[[str, Verdict, int, int], None]  # a student, a verdict, how many are done, of how many


@dataclass(frozen=True)
class ClassPlan:
    """How a class is graded."""

    course: Course
    exercises: Sequence[Exercise]
    secret: bytes  # seeds of all inputs come from it, so that they cannot be known before; the same for all students
    hidden: Path | None = None  # folder of further checks, or None
    isolation: Isolation = field(default_factory=Isolation)  # how the ranks of a submission are shut in; see `shut_in`
    workers: int = 0  # submissions at once
    seconds: float = TO_GRADE  # for one exercise of one submission
    only_failed: bool = False  # grade again what did not pass; keep what passed
    again: bool = False  # grade everything again

    def seed(self, exercise: Exercise) -> int:
        digest = hmac.new(self.secret, exercise.id.encode(), "sha256").digest()
        return int.from_bytes(digest[:16])  # so many that nobody can try all: ranks are told a hash of it


def shut_in(course: Course, level: int, *more: Path | None) -> Isolation:
    """The isolation of submissions: at level 2 all that they see is the system, Python's environment, and the package
    without its checks; nothing of what `more` names, wherever that lies.

    Raises:
        ValueError: level 2 is asked for, and this machine refuses it; or what is to be hidden holds the package.
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
    package, extra = Path(__file__).parents[2], [p.resolve() for p in more if p is not None]
    shown = [package, *(Path(prefix, name) for prefix in (sys.prefix, sys.base_prefix) for name in _OF_PYTHON)]
    if wrong := [p for p in extra if any(s.resolve().is_relative_to(p) for s in shown)]:
        raise ValueError(f"{wrong[0]} holds the package, which submissions need: give a folder that holds nothing else")
    libraries = [Path(p) for p in (*sys.path, *os.environ.get("LD_LIBRARY_PATH", "").split(":")) if os.path.isabs(p)]
    work = [course.root.resolve(), Path.cwd(), Path.home(), *extra]  # what holds that, or is in a course, is no library
    for folder in libraries:
        of_a_course = any((p / "course.toml").exists() for p in (folder, *folder.parents))
        if not of_a_course and not any(p.is_relative_to(folder.resolve()) for p in work):
            shown.append(folder)
    # What is not shown is not there; these may lie in what is shown, or in the system's folders.
    others = [p / "dtlearn" for p in libraries if (p / "dtlearn").resolve() != package.resolve()]
    hidden = [course.root, package / "checks", *extra, *others]
    return Isolation(2, (), *(tuple(str(p.absolute()) for p in paths if p.exists()) for paths in (hidden, shown)))


def grade_class(
    plan: ClassPlan, submissions: Sequence[Submission], store: ResultStore, report: OnVerdict = lambda *_: None
) -> dict[str, list[Verdict]]:
    """Grade all; returns `{student: verdicts, in the order of the exercises}`.

    KeyboardInterrupt stops: what is running is ended and not kept, what is done stays.
    """
    for exercise in plan.exercises:  # a missing check must fail now, not for every student
        find_checks(plan.course, exercise, plan.hidden)
    jobs = [(s, e) for s in submissions for e in plan.exercises]
    verdicts: dict[tuple[str, str], Verdict] = {}
    stop = threading.Event()
    pool = ThreadPoolExecutor(plan.workers or num_cores(), thread_name_prefix="grade")
    graders = Graders()
    try:
        running: dict[Future[Verdict], tuple[Submission, Exercise]] = {
            pool.submit(_one, plan, s, e, store, stop, graders): (s, e) for s, e in jobs
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
        graders.end()
        pool.shutdown(wait=True, cancel_futures=True)
        raise
    pool.shutdown()
    graders.end()
    return {s.student: [verdicts[s.student, e.id] for e in plan.exercises] for s in submissions}


def _one(
    plan: ClassPlan,
    submission: Submission,
    exercise: Exercise,
    store: ResultStore,
    stop: threading.Event,
    graders: Graders,
) -> Verdict:
    source = submission.answers.get(exercise.id)
    if source is None:
        return submission.without_answer(exercise)
    old = None if plan.again else store.load(submission.student, exercise.id, source)
    if old is not None and old.final and (old.passed or not plan.only_failed):
        return old
    answer = Answer(source, submission.files[exercise.id], exercise.name)
    verdict = _grade(plan, exercise, answer, graders)
    if verdict.state == "error" and not stop.is_set():  # another submission may have broken what they share: once more
        time.sleep(0.5)
        verdict = _grade(plan, exercise, answer, graders)
    if not stop.is_set():
        store.save(submission.student, verdict, source)
    return verdict


def _grade(plan: ClassPlan, exercise: Exercise, answer: Answer, graders: Graders) -> Verdict:
    """The verdict of a process of its own. What that cannot say is said here."""
    verdict, memory = graders.grade(
        plan.seconds + TO_READ_AN_ANSWER,
        root=str(plan.course.root),
        exercise=exercise.id,
        seed=plan.seed(exercise),
        seconds=plan.seconds,
        isolation=asdict(plan.isolation),
        hidden=plan.hidden and str(plan.hidden.resolve()),
        text=answer.source,
        file=answer.file,
    )
    if isinstance(verdict, Result):
        verdict = Verdict(exercise.id, exercise.title, verdict.state, 0.0, exercise.points, results=(verdict,))
    return replace(verdict, memory=memory, seed=0)  # the class's: who knows it knows the inputs of all
