"""What a learner may ask for at an exercise: a hint, a worked answer, to begin anew."""

from ...course import Course, Exercise
from ...runtime.errors import DtlearnError
from . import attempts
from .exercise_files import files_of
from .grade_file import solution_text, stub_text, write_answer


def hint_lines(course: Course, exercise: Exercise, command: str, keep: bool = True) -> tuple[list[str], str]:
    """The hints shown before and one more, numbered; and a sentence if that cannot be remembered, else "".

    Args:
        course, exercise: for which.
        command: what shows a worked answer, `dtlearn solution` say.
        keep: whether this is somebody's; if not, it is always the first hint, and nothing is remembered.
    """
    folder = attempts.attempts_folder(course.root, exercise.id)
    before, total = attempts.hints_taken(folder) if keep else 0, len(exercise.hints)
    taken = min(before + 1, total)
    lines = [f"{number} of {total}: {hint}" for number, hint in enumerate(exercise.hints[:taken], start=1)]
    if before >= total:
        return [*lines, f"These are all. After an attempt, `{command} {exercise.id}` shows a worked answer."], ""
    return lines, attempts.note_hints(folder, taken) if keep else ""


def worked_answer(course: Course, exercise: Exercise) -> tuple[str, str] | None:
    """Name and text of the worked answer; None before the first honest attempt. ValueError: it cannot be read."""
    if not any(a.honest for a in attempts.listing(attempts.attempts_folder(course.root, exercise.id))):
        return None
    name = files_of(course, exercise).solution.relative_to(course.root).as_posix()
    return name, solution_text(course, exercise)


def begin_anew(course: Course, exercise: Exercise) -> str:
    """Put the stub in the place of the answer, whose text is kept. Returns a sentence on what was done.

    Raises:
        ValueError: the course has no solutions to make a stub from.
        DtlearnError: the answer cannot be kept, or the file not be written; then it is as it was.
    """
    stub, files = stub_text(course, exercise), files_of(course, exercise)
    name = files.answer.relative_to(course.root).as_posix()
    if stub is None:
        raise ValueError(f"{exercise.id} has no solution here to make its stub from")
    try:
        # Whatever bytes it holds are kept as they are.
        held = files.current.read_bytes().decode("utf-8", "surrogateescape") if files.current.exists() else None
        if held == stub and files.answer.exists():
            return f"{name} is the stub already"
        kept = None
        if held not in (None, stub):
            kept = attempts.keep_copy(attempts.attempts_folder(course.root, exercise.id), held)
        write_answer(files.answer, stub)
    except OSError as error:
        file = error.filename or "a file"
        raise DtlearnError(f"{name} was not reset: {file} cannot be written ({error.strerror})") from error
    return f"{name} is the stub again" + (f"; what it held is in {kept.relative_to(course.root)}" if kept else "")
