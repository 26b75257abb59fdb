"""Below a verdict: the learner's own run, folded, drawn from its record; and played, where it moved data."""

from __future__ import annotations

from typing import Any

from ..grading.own_run import OwnRun
from ..grading.report.own_run import html, moves_data, text, title
from .collective_player import play_collective


def show_own_run(run: OwnRun) -> None:
    """Show it in the running cell of a live front end. What cannot be drawn takes nothing from the verdict."""
    from IPython.display import display

    try:
        display({"text/html": html(run), "text/plain": text(run)}, raw=True)
        if moves_data(run.record):
            display(player(run))
    except Exception as error:
        print(f"This run could not be drawn ({type(error).__name__}: {error}); the verdict above stands.")


def player(run: OwnRun) -> Any:
    """The messages of a run, to step through. They are drawn when somebody opens it."""
    import ipywidgets

    inside = ipywidgets.Output()
    fold = ipywidgets.Accordion([inside], titles=("Your messages, step by step",), selected_index=None)

    def opened(change: dict[str, Any]) -> None:
        if change["new"] == 0 and not inside.outputs:
            with inside:
                play_collective(run.record, title(run))

    fold.observe(opened, "selected_index")
    return fold
