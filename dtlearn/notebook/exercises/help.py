"""The folds below a verdict: hints, one after the other, then a worked answer."""

import html
from typing import Any

from ...course import Course, Exercise
from ...grading.learner import attempts
from ...grading.learner.help import worked_answer
from ...viz.live_widget import show_widget
from ..source import Source


def show_help(course: Course, exercise: Exercise, passed: bool) -> None:
    """Below a verdict: a fold for each hint, which opens after those before it, and one for the worked answer."""
    import ipywidgets

    more = f"<code>%reset_exercise {exercise.id}</code> begins anew; <code>%progress</code> shows what is done."
    below = ipywidgets.HTML(f'<span style="font-size:90%;opacity:0.8">{more}</span>')
    answer = "to see a worked answer" if passed else "for hints and a worked answer"
    show_widget(ipywidgets.VBox([folds(course, exercise, passed), below]), answer)


def folds(course: Course, exercise: Exercise, passed: bool) -> Any:
    """The folds. What is in one is put there when somebody opens it; that is remembered, as `%hint` does."""
    import ipywidgets

    hints = () if passed else exercise.hints
    titles = [*(f"Hint {number} of {len(hints)}" for number in range(1, len(hints) + 1)), "A worked answer"]
    pages = [ipywidgets.HTML() for _ in titles]
    fold = ipywidgets.Accordion(pages, titles=tuple(titles), selected_index=None)

    def opened(change: dict[str, Any]) -> None:
        number: int | None = change["new"]
        if number is None:
            return
        pages[number].value = _hint(course, exercise, number) if number < len(hints) else _answer(course, exercise)

    fold.observe(opened, "selected_index")
    return fold


def _hint(course: Course, exercise: Exercise, number: int) -> str:
    """What is below the title of a hint, counted from 0."""
    folder = attempts.attempts_folder(course.root, exercise.id)
    taken = attempts.hints_taken(folder)
    if number > taken:
        return f"Hint {taken + 1} comes first."
    note = attempts.note_hints(folder, number + 1) if number == taken else ""
    return "<br>".join(html.escape(line) for line in (exercise.hints[number], note) if line)


def _answer(course: Course, exercise: Exercise) -> str:
    try:
        answer = worked_answer(course, exercise)
    except ValueError as error:  # a course without its solutions
        return html.escape(str(error))
    if answer is None:
        return html.escape(not_attempted(exercise))
    return Source(answer[1], answer[0])._repr_html_()


def not_attempted(exercise: Exercise) -> str:
    """Why there is no worked answer yet."""
    return (
        f"{exercise.id} was not attempted yet. Write an answer in its cell, wrong or not, and run it. "
        f"`%hint {exercise.id}` gives a nudge."
    )
