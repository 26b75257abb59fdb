"""`%hint`, `%solution`, `%reset_exercise` and `%progress`: what `dtlearn hint` and others do in a terminal.

A headless run reads and writes no file of the learner's: it shows the first hint, and the board of somebody who begins.
"""

import sys
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_magic, magics_class

from ...course import Course, Exercise
from ...grading.learner.grade_file import stub_text
from ...grading.learner.help import begin_anew, hint_lines, worked_answer
from ...grading.learner.stubs import to_cell
from ..frontend import is_live
from ..source import Source
from .exercise import find_exercise
from .help import not_attempted
from .progress import progress


@magics_class
class HelpMagics(Magics):
    """The magics that help with an exercise."""

    @line_magic
    def hint(self, line: str) -> None:
        """`%hint ch01.name`: show the next hint of an exercise, after those shown before."""
        lines, note = hint_lines(*_named(line), "%solution", keep=is_live())
        print(*lines, sep="\n")
        if note:
            print(note, file=sys.stderr)

    @line_magic
    def solution(self, line: str) -> None:
        """`%solution ch01.name`: show a worked answer to an exercise that was attempted."""
        from IPython.display import display

        course, exercise = _named(line)
        try:
            answer = worked_answer(course, exercise) if is_live() else None
        except ValueError as error:
            raise UsageError(str(error)) from None
        if answer is None:
            print(not_attempted(exercise))
        else:
            display(Source(answer[1], answer[0]))

    @line_magic
    def reset_exercise(self, line: str) -> None:
        """`%reset_exercise ch01.name`: begin an exercise anew, in this cell; what its file held is kept."""
        course, exercise = _named(line)
        if not is_live():
            print(f"{exercise.id} begins anew when a person runs this cell.")
            return
        try:
            print(f"{begin_anew(course, exercise)}. This cell has the stub now.")
        except ValueError as error:
            raise UsageError(str(error)) from None
        assert self.shell is not None
        self.shell.set_next_input(to_cell(stub_text(course, exercise) or "", exercise.id), replace=True)

    @line_magic
    def progress(self, line: str) -> Any:
        """`%progress`: every exercise, its state, best score, attempts, hints."""
        if line.strip():
            raise UsageError(f"%progress takes nothing; got {line.strip()!r}")
        return progress()


def _named(line: str) -> tuple[Course, Exercise]:
    """The exercise that a line names."""
    if not line.strip():
        raise UsageError("of which exercise? Write its id behind the magic, such as ch01.barrier; Tab completes it")
    return find_exercise(line.strip())
