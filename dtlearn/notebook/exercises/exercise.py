"""`%%exercise chNN.name`: a cell that is an answer. Running it saves it to the exercise's file and grades it.

`%%try chNN.name` in its place only runs it on 2 ranks and shows what they return; `%try chNN.name` does so with the
file.

With a person at the front end the display follows the grading, and each attempt is kept. A headless run reads and
writes no file of the learner's and says the same every time: the stub is "not attempted", any other text is graded
with a fixed seed.
"""

import contextlib
import linecache
from dataclasses import dataclass
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics, cell_magic, line_cell_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments

from ...course import Course, Exercise, load_course
from ...grading.judge_process.client import JudgeError, get_judge
from ...grading.learner import attempts
from ...grading.learner.exercise_files import files_of
from ...grading.learner.grade_file import not_attempted, read_answer, stub_text, write_answer
from ...grading.learner.stubs import same_text, to_file, with_task
from ...grading.own_run import OwnRun
from ...grading.verdict import Verdict
from ...runtime.errors import RanksInterrupted
from ...runtime.words import wrapped
from ..frontend import is_live
from ..magics import parse_line
from ..render import rank_label
from .help import show_help
from .verdict_display import VerdictDisplay, show_own_run

_HEADLESS_SEED = 20
_DEFINES = ("passed", "failed")  # after a crash or a hang, running the text here would be unwise


@magics_class
class ExerciseMagics(Magics):
    """The magic of exercise cells."""

    @magic_arguments()
    @argument("id", help="of the exercise, such as ch01.average")
    @argument("--seed", type=int, help="of the inputs, to repeat what a report shows")
    @cell_magic
    def exercise(self, line: str, cell: str) -> None:
        """Save this cell to the exercise's file and grade it."""
        args = parse_line(self.exercise, line)
        course, exercise = find_exercise(args.id)
        if not cell.strip():
            raise UsageError(f"the cell is empty: write your answer to {exercise.id} below its first line")
        assert self.shell is not None
        text = to_file(cell, exercise.id)
        subject = settle(course, exercise, text) if is_live() else Subject(text)
        verdict = _grade(course, exercise, subject, args.seed, is_live())
        if verdict.state in _DEFINES and subject.is_cell:
            print(define(text, exercise, self.shell.user_ns))

    @magic_arguments()
    @argument("id", help="of the exercise, such as ch01.average")
    @line_cell_magic("try")  # type: ignore[arg-type]  # IPython takes a name there, and its annotation does not
    def try_(self, line: str, cell: str | None = None) -> None:
        """Run an answer, this cell or the exercise's file, on 2 ranks and show what each returns. It is not graded."""
        from ...grading.learner.try_answer import try_answer  # here, as it loads torch

        course, exercise = find_exercise(parse_line(self.try_, line).id)
        text = None if cell is None else to_file(cell, exercise.id)
        if text is None and not is_live():  # what a learner's file holds is another thing every time
            text = stub_text(course, exercise)
        try:
            trial = try_answer(course, exercise, text)
        except ValueError as error:
            raise UsageError(str(error)) from None
        print(trial.heading)
        for rank, lines in trial.lines.items():
            print(*(f"{rank_label([rank])} {line}" for line in lines), sep="\n")
        if trial.error:
            print("", *wrapped(trial.error), sep="\n")


@dataclass(frozen=True)
class Subject:
    """What is graded."""

    source: str | None  # the text; None: what the file holds
    notes: tuple[str, ...] = ()  # what the learner should know about the cell and the file
    is_cell: bool = True  # whether it is the text of the cell


def find_exercise(id: str) -> tuple[Course, Exercise]:
    """The course and one of its exercises. Raises UsageError with the ids that are like it."""
    try:
        course = load_course()
        return course, course.exercise(id)
    except ValueError as error:
        raise UsageError(str(error)) from None


def start_judge() -> None:
    """Start the judge in the background, if there will be something to judge: its first verdict comes sooner then."""
    with contextlib.suppress(ValueError, JudgeError):  # without a course or a judge, the first exercise cell says so
        if is_live() and any(chapter.exercises for chapter in load_course().chapters):
            get_judge()


def settle(course: Course, exercise: Exercise, text: str) -> Subject:
    """Bring cell and file together so that no work is lost, and say what is to be graded.

    An untouched cell never replaces a file that was worked on; a file that somebody changed since is kept as a copy
    before the cell replaces it. `text`: of the cell, as it is graded; the file has the task too.
    """
    files, stub = files_of(course, exercise), stub_text(course, exercise)
    file, current = files.answer, files.current
    name = current.relative_to(course.root).as_posix()
    try:
        there = read_answer(current) if current.exists() else None
    except ValueError as error:
        return Subject(text, (f"{error}. The cell was graded and not saved there.",))
    if stub is not None and same_text(text, stub):
        if there is not None and not same_text(there, stub):
            note = f"This cell holds the untouched stub; your work in {name} was graded, and is left as it is."
            return Subject(None, (note,), is_cell=False)
        return Subject(text)
    notes: list[str] = []
    try:
        if there is not None and not same_text(there, text) and (stub is None or not same_text(there, stub)):
            kept = attempts.keep_copy(attempts.attempts_folder(course.root, exercise.id), there)
            if kept.name.startswith("copy-"):  # no attempt: the file was edited by other means than a cell
                notes.append(f"{name} held another text; it is kept as {kept.relative_to(course.root).as_posix()}.")
        whole = with_task(text, stub or "")
        if there != whole or not file.exists():
            write_answer(file, whole)
    except OSError as error:
        name = file.relative_to(course.root).as_posix()
        notes.append(f"{name} could not be written ({error.strerror or error}); this cell was graded all the same.")
    return Subject(text, tuple(notes))


def _grade(course: Course, exercise: Exercise, subject: Subject, seed: int | None, live: bool) -> Verdict:
    """Grade with a display that follows. A fault of the grader's is an error of the cell; a wrong answer is not."""
    display = VerdictDisplay(exercise, live)
    verdict: Verdict | None = None
    if subject.source is not None and same_text(subject.source, stub_text(course, exercise) or ""):
        verdict = display.show(not_attempted(exercise))
        if live:
            show_help(course, exercise, passed=False)
        return verdict
    display.start()
    seed = _HEADLESS_SEED if seed is None and not live else seed
    steps = get_judge().grade(course.root, exercise.id, source=subject.source, seed=seed, keep=live, draw=live)
    try:
        with contextlib.closing(steps):  # an interrupt in here stops the grading too
            for step in steps:
                if isinstance(step, Verdict):
                    verdict = display.show(step, subject.notes)
                    if live:
                        show_help(course, exercise, verdict.passed)
                elif isinstance(step, OwnRun):
                    show_own_run(step)
                else:
                    display.progress(*step)
    except KeyboardInterrupt:
        if verdict is None:
            display.stopped()
            raise RanksInterrupted("The grading was stopped. Your answer is kept; no rank is left running.") from None
    assert verdict is not None, "the judge ended without a verdict"
    return verdict


def define(text: str, exercise: Exercise, names: dict[str, Any]) -> str:
    """Run the text in the notebook, as a plain cell, for later cells. Returns a sentence on what came of it."""
    file = f"<{exercise.id}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    try:
        exec(compile(text, file, "exec"), names)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # sys.exit, say: the notebook must not end of it
        return f"{exercise.name} is not defined in this notebook: the cell raised {type(error).__name__}: {error}"
    return f"{exercise.name} is defined in this notebook now, as you wrote it."
