"""Show the editor in a cell: with its controls while a kernel is live, as a figure, a table and a text always."""

from __future__ import annotations

import html
from typing import Any

from ...live_widget import show_widget
from ...picture import folded
from .assess import assess
from .draft import Draft, Recipe, TypedTimes
from .form import Form, RunSchedule
from .pages import numbers, picture


def edit_schedule(
    recipe: Recipe, *, live: bool, times: TypedTimes | None = None, run: RunSchedule | None = None
) -> None:
    """Show a schedule that can be edited: typed, dragged, moved, made for other sizes and stage times, and run.

    Whatever is typed is read at once: its picture to scale, makespan, bubble and live activations are shown, or why it
    is wrong. Nothing that is typed raises an error into the page.

    Args:
        recipe: the schedule that is shown first, `Recipe("1f1b", 4, 8)` say.
        live: whether somebody can use controls (`dtlearn.notebook.frontend.is_live()`); without, the figure is shown.
        times: stage times in ms, as text.
        run: called with the edited `Schedule`, its `StageTimes` and the time of a transfer, in seconds; executes it on
            real ranks and returns the record, with a phase for each action. None: the editor has no button for it.

    Raises:
        ValueError: a recipe or times that make no schedule.
    """
    from IPython.display import display

    draft = Draft.from_recipe(recipe, times)
    assessment = assess(draft)
    drawn, table = picture(assessment), numbers(assessment)
    if drawn is None or table is None:
        raise ValueError(f"expected a recipe and stage times that can be run; got {'; '.join(assessment.problems)}")
    if not live:
        drawn.display()
        display(table)
        display(_text_bundle(draft.text), raw=True)
        return
    import ipywidgets

    show_widget(Form(ipywidgets, draft, run).widget, "to change the schedule")
    page = drawn.img() + table._repr_html_() + _text_bundle(draft.text)["text/html"]
    words = {"text/html": folded("The editor as it begins", page), "text/plain": f"Figure: {drawn.alt}\n{draft.text}"}
    display(words, raw=True)


def _text_bundle(text: str) -> dict[str, Any]:
    return {"text/html": f"<pre>{html.escape(text)}</pre>", "text/plain": text}
