"""The output of an exercise cell: it follows the grading while a person looks, and ends as a static report.

Below that stands the learner's own run, folded, drawn from its record; and played, where it moved data.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ...course import Exercise
from ...grading.own_run import OwnRun
from ...grading.report.html import bundle, running_bundle
from ...grading.report.words import hint_command
from ...grading.verdict import Result, Verdict
from ...viz.live_widget import show_widget
from ..render import InPlace


class VerdictDisplay:
    """One display, updated in place; if not `live`, one static report, without what differs from run to run."""

    def __init__(self, exercise: Exercise, live: bool) -> None:
        self._exercise, self._live = exercise, live
        self._results: list[Result] = []
        self._display = InPlace()
        self._done = (0, 0)

    def start(self) -> None:
        """Show that the grading began; its first result may take seconds."""
        if self._live:
            self._display.show(_line(f"{self._exercise.id}: grading begins"))

    def progress(self, result: Result, done: int, total: int) -> None:
        """Show one more result."""
        self._results.append(result)
        self._done = done, total
        if self._live:
            self._display.show(running_bundle(self._exercise.id, self._exercise.title, self._results, done, total))

    def show(self, verdict: Verdict, notes: Sequence[str] = ()) -> Verdict:
        """Show the verdict, with what else the learner should know. Returns it."""
        shown = replace(verdict, notes=(*notes, *verdict.notes))
        if not self._live:
            shown = replace(shown, seconds=0.0, attempt=0, seed=0)
        said = bundle(shown)
        if self._live:  # nobody has to leave the notebook for a hint
            said = {kind: text.replace(hint_command(shown), f"%hint {shown.exercise}") for kind, text in said.items()}
        self._display.show(said)
        return verdict

    def stopped(self) -> None:
        """Leave what was seen so far, as text that claims nothing more."""
        done, total = self._done
        self._display.show(
            _line(f"{self._exercise.id}: the grading was stopped after {done} of {total or 'its'} runs.")
        )


def _line(text: str) -> dict[str, str]:
    return {"text/plain": text, "text/html": f'<p role="status">{text}</p>'}


def show_own_run(run: OwnRun) -> None:
    """Show it in the running cell of a live front end. What cannot be drawn takes nothing from the verdict."""
    from IPython.display import display

    from ...grading.report.own_run import html, moves_data, text  # here, as it loads matplotlib and torch

    try:
        display({"text/html": html(run), "text/plain": text(run)}, raw=True)
        if moves_data(run.record):
            show_widget(player(run), "to see your messages step by step")
    except Exception as error:
        print(f"This run could not be drawn ({type(error).__name__}: {error}); the verdict above stands.")


def player(run: OwnRun) -> Any:
    """The messages of a run, to step through. They are drawn when somebody opens it."""
    import ipywidgets

    from ...grading.report.own_run import title
    from ..collective_player import play_collective

    inside = ipywidgets.Output()
    fold = ipywidgets.Accordion([inside], titles=("Your messages, step by step",), selected_index=None)

    def opened(change: dict[str, Any]) -> None:
        if change["new"] == 0 and not inside.outputs:
            with inside:
                play_collective(run.record, title(run))

    fold.observe(opened, "selected_index")
    return fold
