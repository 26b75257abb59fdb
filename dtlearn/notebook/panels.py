"""Figures that a reader can move through: steps and sliders while a kernel is live, the same as pictures always.

The static form is part of every output: a saved notebook says the same on GitHub, on paper and without a kernel.
Nothing here uses pyplot: a callback that touched its global state would draw into whatever figure is current.
"""

import html
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure

from dtlearn.viz.live_widget import show_widget
from dtlearn.viz.picture import DrawFrame, Picture, draw_frame, folded
from dtlearn.viz.style import new_figure, style
from dtlearn.viz.table import Table, rank_table

from .frontend import is_live


@dataclass(frozen=True)
class Slider:
    """One quantity that a reader can change.

    Attributes:
        values: the values it can take, in order.
        start: the one that the static figure shows.
        label: what it is, with its unit.
        read: if given, a field beside the slider takes any text, and this makes a value of it. Its ValueError is shown.
    """

    values: tuple[Any, ...]
    start: Any
    label: str
    read: Callable[[str], Any] | None = None

    def __post_init__(self) -> None:
        if self.start not in self.values:
            raise ValueError(f"slider {self.label!r}: its start {self.start} is not one of its values")


def stepper(
    frames: Sequence[DrawFrame], captions: Sequence[str], alt: str, size: tuple[float, float], static: Picture
) -> None:
    """Show a sequence of states, counted from 0: live with a slider and a play button, always as one figure too.

    Args:
        frames: one function per state that draws it on the axes it is given.
        captions: one line per state.
        alt: what the sequence shows, in words.
        size: width and height of one frame there, in inches; live it is 1.6 times as large.
        static: the figure of all frames.

    Raises:
        ValueError: no frames, or not one caption for each.
    """
    if not frames or len(frames) != len(captions):
        raise ValueError(f"a stepper needs one caption per frame, not {len(captions)} for {len(frames)}")
    if not is_live():
        static.display()
        return
    from IPython.display import display

    show_widget(_step_widget(frames, captions, alt, size), "to go through the steps")
    display({"text/html": folded("All steps at once", static.img()), "text/plain": f"Figure: {static.alt}"}, raw=True)


def slider_panel(draw: Callable[..., Figure], alt: str, **sliders: Slider) -> None:
    """Show a figure that depends on some values: live with sliders, always at their start values with a table of them.

    Args:
        draw: makes the figure; called with the value of each slider under its name.
        alt: what the figure shows at the start values, in words.
        sliders: the quantities that can be changed, by name of `draw`'s argument.

    Raises:
        ValueError: no sliders.
    """
    if not sliders:
        raise ValueError("a slider panel needs at least one slider")
    static = Picture(draw(**{name: slider.start for name, slider in sliders.items()}), alt)
    table = slider_table(sliders)
    from IPython.display import display

    if not is_live():
        static.display()
        display(table)
        return
    show_widget(_slider_widget(draw, alt, sliders), "to change the values")
    fallback = folded("The figure at the start values", static.img() + table._repr_html_())
    display({"text/html": fallback, "text/plain": f"Figure: {alt}\n{table}"}, raw=True)


def slider_table(sliders: dict[str, Slider]) -> Table:
    """What each slider is, what the static figure shows, and what else it can be."""
    rows = [
        {"slider": s.label, "in this figure": _words(s.start), "can be": "; ".join(map(_words, s.values))}
        for s in sliders.values()
    ]
    return rank_table(rows, "Values of the sliders; run the cell in JupyterLab to change them")


def _step_widget(frames: Sequence[DrawFrame], captions: Sequence[str], alt: str, size: tuple[float, float]) -> Any:
    """A slider and a play button over pictures that are all drawn beforehand, so that playing never waits."""
    import ipywidgets as widgets

    pages = []
    last = len(frames) - 1
    for number, (frame, caption) in enumerate(zip(frames, captions, strict=True)):
        with style():
            fig = new_figure(height=1.6 * size[1], width=1.6 * size[0])
            draw_frame(fig.add_subplot(), frame, f"{number}. {caption}")
        pages.append(Picture(fig, f"{alt} Step {number} of {last}: {caption}").img())
    page = widgets.HTML(pages[0])
    slider = widgets.IntSlider(0, 0, last, description=f"Step (of {last})", style={"description_width": "initial"})
    play = widgets.Play(value=0, min=0, max=last, interval=1200)
    widgets.jslink((play, "value"), (slider, "value"))

    def turn(change: dict[str, Any]) -> None:
        page.value = pages[change["new"]]

    slider.observe(turn, names="value")
    return widgets.VBox([widgets.HBox([play, slider]), page])


def _slider_widget(draw: Callable[..., Figure], alt: str, sliders: dict[str, Slider]) -> Any:
    import ipywidgets as widgets

    page = widgets.HTML()
    # One width for all labels puts the tracks under each other; ipywidgets' own 300 pixels leave a long label no track.
    labels = {"description_width": f"{max(len(s.label) for s in sliders.values()) + 1}ch"}  # 1: an m is wider than a 0
    controls = {
        name: widgets.SelectionSlider(
            options=[(_words(value), value) for value in s.values],
            value=s.start,
            description=s.label,
            style=labels,
            layout=widgets.Layout(width="100%", max_width="700px"),
            continuous_update=False,
            readout=s.read is None,
        )
        for name, s in sliders.items()
    }
    fields = {name: _field(widgets, controls[name]) for name, s in sliders.items() if s.read}

    def redraw(_: object = None) -> None:
        texts = {name: fields[name].value if name in fields else _words(c.value) for name, c in controls.items()}
        chosen = ", ".join(f"{sliders[name].label} = {text}" for name, text in texts.items())
        try:
            values = {name: s.read(texts[name]) if s.read else controls[name].value for name, s in sliders.items()}
            page.value = Picture(draw(**values), f"{alt} Now at {chosen}.").img()
        except ValueError as error:
            page.value = f'<p role="alert">No figure for {html.escape(chosen)}: {html.escape(str(error))}</p>'

    for control in (controls | fields).values():  # a slider with a field writes into it, and the field redraws
        control.observe(redraw, names="value")
    redraw()
    # One width for all values, and a gap before them: a long number touches the slider's handle otherwise.
    width = max(len(_words(value)) for s in sliders.values() for value in s.values)
    rule = f".dtlearn-sliders .widget-readout {{ min-width: {width}ch; max-width: none; margin-left: 1.5em; }}"
    rows = [widgets.HBox([c, fields[name]]) if name in fields else c for name, c in controls.items()]
    panel = widgets.VBox([*rows, page, widgets.HTML(f"<style>{rule}</style>")])
    panel.add_class("dtlearn-sliders")
    return panel


def _field(widgets: Any, slider: Any) -> Any:
    """A field for any text; a slider that is moved writes its value into it."""
    layout = widgets.Layout(width="16em", flex="none")
    field = widgets.Text(_words(slider.value), description="or type", continuous_update=False, layout=layout)
    slider.observe(lambda _: setattr(field, "value", _words(slider.value)), names="value")
    return field


def _words(value: Any) -> str:
    """A slider's value as a person reads it."""
    return f"{value:,}" if type(value) is int else str(value)  # not a bool
