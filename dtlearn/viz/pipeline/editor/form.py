"""The editor's controls: they change the draft, and show what comes of it. `ipywidgets` is imported by who makes one.

Text and tags are two views of the same rows. Whatever is changed, the draft is changed first, and then all controls are
set from it; a control that is set so must not be taken for one that a person used, hence `_setting`.
"""

from __future__ import annotations

import contextlib
import html
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from dtlearn.pipeline_parallel import SCHEDULES, Schedule, StageTimes
from dtlearn.runtime.record.record import Record

from .assess import Assessment, assess
from .draft import Draft, History, Recipe, TypedTimes
from .pages import measured_page, numbers_page, picture_page, verdict_page

RunSchedule = Callable[[Schedule, StageTimes, float], Record]  # with the seconds of a transfer

MOST_RANKS, MOST_MICROBATCHES, MOST_CHUNKS = 8, 16, 4
_TIMES = {"forward": "F, ms", "inputs": "I, ms", "weights": "W, ms", "transfer": "transfer, ms"}
_TIMES_WORDS = (
    "One number is the time of 1/p of the model; a stage takes 1/v of it. Or type one number for each stage. "
    "B takes I and W together."
)
_TEXT_WORDS = "A line for each rank. Copy it out, paste another one in, or type; it is read when you leave the field."
_TAGS_WORDS = "Drag an action to another place, or to another rank. × takes it out."
# A tag is as wide as its word.
_STYLE = (
    "<style>.dtlearn-rows .jupyter-widget-tag { cursor: grab; margin: 1px; padding: 0 3px; }"
    ".dtlearn-rows .jupyter-widget-tag-close { margin-left: 2px; opacity: 0.5; }"
    ".dtlearn-text textarea { font-family: monospace; white-space: pre; overflow-x: auto; }</style>"
)


class Form:
    """The controls of one editor.

    Args:
        widgets: the module `ipywidgets`.
        start: what is shown first.
        run: executes a schedule on real ranks; None: there is no button for it.

    Attributes:
        widget: what is displayed.
        history: the drafts.
    """

    def __init__(self, widgets: Any, start: Draft, run: RunSchedule | None) -> None:
        self._widgets, self._run, self._setting = widgets, run, False
        self.history = History(start)
        self.assessment: Assessment = assess(start)
        self._make_controls()
        top = [
            self._row([self.name, self.ranks, self.microbatches, self.chunks]),
            self._row([*self.times]),
            self._help(_TIMES_WORDS),
        ]
        typing = widgets.VBox([self._help(_TEXT_WORDS), self.text])
        dragging = widgets.VBox([self._help(_TAGS_WORDS), self.rows_box])
        tabs = widgets.Tab([typing, dragging], titles=("Type", "Drag"))
        moves = self._row([self.action, *self.moves, self.undo, self.redo])
        results = [self.said, self.verdict, self.picture, self.numbers]
        if run is not None:
            results += [self.run, self.measured]
        self.widget = widgets.VBox([*top, tabs, moves, *results, widgets.HTML(_STYLE)])
        self._show()

    # Making

    def _row(self, children: list[Any]) -> Any:
        """Controls beside each other, in more lines where the window is narrow."""
        return self._widgets.HBox(children, layout=self._widgets.Layout(flex_flow="row wrap"))

    def _make_controls(self) -> None:
        w = self._widgets
        wide = {"description_width": "initial"}
        whole = {"continuous_update": False, "style": wide, "layout": w.Layout(width="12em")}
        kinds = [(kind.title, name) for name, kind in SCHEDULES.items()]
        self.name = w.Dropdown(options=kinds, description="schedule", style=wide, layout=w.Layout(width="16em"))
        self.ranks = w.BoundedIntText(min=1, max=MOST_RANKS, description="ranks p", **whole)
        self.microbatches = w.BoundedIntText(min=1, max=MOST_MICROBATCHES, description="micro-batches m", **whole)
        self.chunks = w.BoundedIntText(min=1, max=MOST_CHUNKS, description="chunks v", **whole)
        for control in (self.name, self.ranks, self.microbatches, self.chunks):
            control.observe(self._on_recipe, names="value")
        self.times = [
            w.Text(description=label, continuous_update=False, style=wide, layout=w.Layout(width="15em"))
            for label in _TIMES.values()
        ]
        for field in self.times:
            field.observe(self._on_times, names="value")
        self.text = w.Textarea(continuous_update=False, layout=w.Layout(width="100%"))
        self.text.add_class("dtlearn-text")
        self.text.observe(self._on_text, names="value")
        self.tags: list[Any] = []
        self.rows_box = w.VBox([])
        self.rows_box.add_class("dtlearn-rows")
        self.action = w.Dropdown(description="action", style=wide, layout=w.Layout(width="20em"))
        self.moves = [
            self._button("earlier", "arrow-left", lambda d, r, p: d.shifted(r, p, -1)),
            self._button("later", "arrow-right", lambda d, r, p: d.shifted(r, p, 1)),
            self._button("rank above", "arrow-up", lambda d, r, p: d.carried(r, p, r - 1)),
            self._button("rank below", "arrow-down", lambda d, r, p: d.carried(r, p, r + 1)),
        ]
        self.undo = w.Button(description="Undo", icon="undo", layout=w.Layout(width="6em"))
        self.redo = w.Button(description="Redo", icon="repeat", layout=w.Layout(width="6em"))
        self.undo.on_click(lambda _: self._go(self.history.undo))
        self.redo.on_click(lambda _: self._go(self.history.redo))
        self.said, self.verdict, self.picture, self.numbers = (w.HTML() for _ in range(4))
        self.run, self.measured = w.Button(layout=w.Layout(width="auto")), w.HTML()
        self.run.on_click(self._on_run)

    def _help(self, words: str) -> Any:
        return self._widgets.HTML(f'<span style="font-size:90%;opacity:0.8">{words}</span>')

    def _button(self, label: str, icon: str, move: Callable[[Draft, int, int], Any]) -> Any:
        width = f"{len(label) + 4}ch"  # with room for the icon; "auto" lets a crowded row cut the words off
        layout = self._widgets.Layout(width=width, min_width=width)
        button = self._widgets.Button(description=label, icon=icon, layout=layout)

        def click(_: object) -> None:
            if self.action.value is None:
                return
            draft, place = move(self.history.draft, *self.action.value)
            self._change(draft, place)

        button.on_click(click)
        return button

    # What a person does

    def _on_recipe(self, _: object) -> None:
        if self._setting:
            return
        recipe = Recipe(self.name.value, self.ranks.value, self.microbatches.value, self.chunks.value)
        try:
            self._change(Draft.from_recipe(recipe, self.history.draft.times))
        except ValueError as error:
            self._say(f"No such schedule: {error}")

    def _on_times(self, _: object) -> None:
        if not self._setting:
            times = TypedTimes(**{name: field.value for name, field in zip(_TIMES, self.times, strict=True)})
            self._change(replace(self.history.draft, times=times))

    def _on_text(self, change: dict[str, Any]) -> None:
        if not self._setting:
            self._change(replace(self.history.draft, text=change["new"]))

    def _on_tags(self, rank: int, words: list[str]) -> None:
        if not self._setting:
            self._change(self.history.draft.dropped(rank, tuple(words)))

    def _go(self, step: Callable[[], bool]) -> None:
        self._say("")
        if step():
            self._show()

    def _on_run(self, _: object) -> None:
        schedule, times = self.assessment.schedule, self.assessment.times
        if self._run is None or schedule is None or times is None or not self.assessment.is_valid:
            return
        self.run.disabled = True
        self._say(f"Running on {schedule.num_ranks} ranks ...")
        try:
            record = self._run(schedule, times, self.assessment.transfer)
            self.measured.value = measured_page(self.assessment, record)
            self._say("")
        except Exception as error:  # whatever a run ends with must be said on the page; a callback has no other place
            self._say(f"The run failed: {error}")
        self.run.disabled = False

    # What is shown

    def _change(self, draft: Draft, place: tuple[int, int] | None = None) -> None:
        self._say("")
        if self.history.change(draft):
            self._show(place)

    def _say(self, text: str) -> None:
        self.said.value = f'<span role="status">{html.escape(text)}</span>' if text else ""

    def _show(self, place: tuple[int, int] | None = None) -> None:
        """Set all controls from the present draft, and draw it."""
        draft = self.history.draft
        with self._set_by_us():
            self._show_recipe(draft.recipe)
            for name, field in zip(_TIMES, self.times, strict=True):
                field.value = getattr(draft.times, name)
            self.text.value, self.text.rows = draft.text, max(3, len(draft.rows) + 1)
            self._show_tags(draft)
            words = [(rank, n, word) for rank, row in enumerate(draft.rows) for n, word in enumerate(row)]
            place = place or self.action.value
            places = [(rank, n) for rank, n, _ in words]
            self.action.options = [(f"rank {rank}, position {n}: {word}", (rank, n)) for rank, n, word in words]
            if places:
                self.action.value = place if place in places else places[0]
        self.undo.disabled, self.redo.disabled = not self.history.can_undo, not self.history.can_redo
        self.assessment = assess(draft)
        self.verdict.value = verdict_page(self.assessment)
        self.picture.value = picture_page(self.assessment)
        self.numbers.value = numbers_page(self.assessment)
        self.measured.value = ""
        self.run.disabled = not self.assessment.is_valid
        num_ranks = len(draft.rows)
        self.run.description = f"Run it on {num_ranks} rank{'s' * (num_ranks != 1)} with these stage times, emulated"

    def _show_recipe(self, recipe: Recipe | None) -> None:
        if recipe is not None:
            self.name.value, self.ranks.value = recipe.name, recipe.num_ranks
            self.microbatches.value, self.chunks.value = recipe.num_microbatches, recipe.chunks
            self.chunks.disabled = not recipe.has_chunks

    def _show_tags(self, draft: Draft) -> None:
        rows = draft.rows
        if len(self.tags) != len(rows):
            self.tags = [self._tags_of(rank) for rank in range(len(rows))]
            labels = (
                self._widgets.Label(f"rank {rank}", layout=self._widgets.Layout(width="4em"))
                for rank in range(len(rows))
            )
            self.rows_box.children = [self._widgets.HBox([*pair]) for pair in zip(labels, self.tags, strict=True)]
        for tags, row in zip(self.tags, rows, strict=True):
            tags.value = list(row)

    def _tags_of(self, rank: int) -> Any:
        tags = self._widgets.TagsInput(allow_duplicates=True, layout=self._widgets.Layout(width="100%"))
        tags.observe(lambda change: self._on_tags(rank, change["new"]), names="value")
        return tags

    @contextlib.contextmanager
    def _set_by_us(self) -> Iterator[None]:
        self._setting = True
        try:
            yield
        finally:
            self._setting = False
