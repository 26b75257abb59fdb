"""A widget in a cell, and below it what to do where no kernel answers it: on the second day, on a page, on paper.

A saved notebook does not hold the widget. (JupyterLab can save it, but leaves out what no kernel answers when it saves:
on the third day it would be gone.) So words stand below it, which JupyterLab hides while a kernel is behind it; and
where there is no widget any more, it hides "Error displaying widget: model not found".
"""

import html
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_LIVE, _WORDS = "dtlearn-live", "dtlearn-without-a-kernel"
# ipywidgets marks a widget whose kernel is gone, and puts a broken chain before each of its parts; the words say more.
_GONE = "jupyter-widgets-disconnected"
_RULES = (
    f".jp-OutputArea:has(.{_LIVE}:not(.{_GONE})) .{_WORDS} {{ display: none; }} "
    f".jp-OutputArea-child:has(+ .jp-OutputArea-child .{_WORDS}):not(:has(.{_LIVE})) {{ display: none; }} "
    f".{_LIVE}.{_GONE} {{ opacity: 0.6; }} .{_LIVE}.{_GONE}::before, .{_LIVE} .{_GONE}::before {{ content: none; }}"
)

_shown: dict[str, tuple[str, list[Any]]] = {}  # of each cell: its latest run, and the widgets that this run has shown


@dataclass(frozen=True)
class LiveWidget:
    """A widget as it is displayed; its repr would stand on every page that has no widgets."""

    inside: Any  # the widget
    box: Any  # what holds it, with a name for the rules

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        return {**self.box._repr_mimebundle_(), "text/plain": ""}


def show_widget(widget: Any, words: str) -> None:
    """Show a widget in the running cell.

    Args:
        widget: of `ipywidgets`.
        words: what running the cell again is good for: "to change the values".
    """
    import ipywidgets
    from IPython.display import display

    box = ipywidgets.VBox([widget])
    box.add_class(_LIVE)
    _close_earlier(box)
    display(LiveWidget(widget, box))
    text = f"Nothing to click here, or it does not answer? Run this cell {words}."
    note = f'<style>{_RULES}</style><p class="{_WORDS}"><em>{html.escape(text)}</em></p>'
    display({"text/html": note, "text/plain": text}, raw=True)


def _close_earlier(box: Any) -> None:
    """Close what earlier runs of this cell have shown: it is gone from the page, and would take memory all the same."""
    from IPython.core.getipython import get_ipython

    parent: dict[str, Any] = getattr(get_ipython(), "parent_header", None) or {}
    cell, run = parent.get("metadata", {}).get("cellId"), parent.get("header", {}).get("msg_id")
    if cell is None or run is None:
        return
    latest, boxes = _shown.get(cell, ("", []))
    if latest != run:
        for part in [part for old in boxes for part in _parts(old)]:
            part.close()
        boxes = []
    _shown[cell] = run, [*boxes, box]


def _parts(widget: Any) -> Iterator[Any]:
    """A widget and all that it is made of: what it holds, its layout, its style."""
    for name in widget.keys:
        value = getattr(widget, name)
        for part in value if isinstance(value, tuple | list) else (value,):
            if hasattr(part, "keys") and hasattr(part, "comm"):
                yield from _parts(part)
    yield widget
