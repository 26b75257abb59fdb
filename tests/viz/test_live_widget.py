import re
from collections.abc import Mapping
from pathlib import Path

import ipywidgets
import pytest

from dtlearn.viz.live_widget import LiveWidget, show_widget

ROOT = Path(__file__).resolve().parents[2]


class Shell:
    """What a kernel knows of the message that it answers."""

    def __init__(self):
        self.run("cell a", "message 0")

    def run(self, cell, message):
        self.parent_header = {"header": {"msg_id": message}, "metadata": {"cellId": cell}}


@pytest.fixture
def shell(monkeypatch):
    shell = Shell()
    monkeypatch.setattr("IPython.core.getipython.get_ipython", lambda: shell)
    monkeypatch.setattr("dtlearn.viz.live_widget._shown", {})
    return shell


@pytest.fixture
def shown(monkeypatch, shell):
    outputs = []
    monkeypatch.setattr("IPython.display.display", lambda data, **_: outputs.append(data))
    return outputs


def form():
    """A widget of seven: three that are seen, each with its layout, and the style of one."""
    return ipywidgets.VBox([ipywidgets.HTML("a"), ipywidgets.Button(description="Commit")])


def test_below_the_widget_stands_what_to_do_without_a_kernel(shown):
    show_widget(form(), "for a <form>")
    widget, note = shown
    assert isinstance(widget, LiveWidget) and widget._repr_mimebundle_()["text/plain"] == ""
    assert "application/vnd.jupyter.widget-view+json" in widget._repr_mimebundle_()
    assert note["text/plain"].endswith("Run this cell for a <form>.") and "for a &lt;form&gt;." in note["text/html"]


def test_a_page_hides_the_words_while_a_kernel_answers(shown):
    show_widget(form(), "again")
    widget, note = shown
    style, _, text = note["text/html"].partition("</style>")
    (name,) = widget.box._dom_classes
    assert f".{name}:not(.jupyter-widgets-disconnected)" in style and 'class="dtlearn-without-a-kernel"' in text


def test_a_second_run_of_a_cell_closes_what_the_first_has_shown(shown, shell):
    show_widget(form(), "again")
    show_widget(form(), "again")  # two in one run
    shell.run("cell b", "message 1")
    show_widget(form(), "again")
    before = [output for output in shown if isinstance(output, LiveWidget)]
    assert all(widget.inside.comm for widget in before)
    shell.run("cell a", "message 2")
    show_widget(form(), "again")
    first, second, other = before
    assert first.box.comm is second.box.comm is None and other.box.comm
    parts = [first.inside, *first.inside.children]
    assert all(part.comm is part.layout.comm is None for part in parts) and first.inside.children[1].style.comm is None


def test_a_front_end_that_names_no_cells_keeps_all_widgets(shown, shell):
    shell.parent_header = {"header": {"msg_id": "1"}, "metadata": {}}
    show_widget(form(), "again")
    shell.parent_header = {"header": {"msg_id": "2"}, "metadata": {}}
    show_widget(form(), "again")
    assert shown[0].box.comm


def bare(sources: Mapping[str, str]) -> list[str]:
    """Files that make widgets and display something that is neither a bundle nor a table: a widget, most likely."""
    other = re.compile(r"(?<![\w.])display\((?!data\b|table\b|words\b|\{|_text_bundle|LiveWidget)")
    return [name for name, text in sources.items() if "import ipywidgets" in text and other.search(text)]


def test_no_widget_is_displayed_without_its_words():
    sources = {file.as_posix(): file.read_text("utf-8") for file in (ROOT / "dtlearn").rglob("*.py")}
    assert sum("import ipywidgets" in text for text in sources.values()) > 4
    assert bare(sources) == []
    assert bare({"planted": "import ipywidgets\ndisplay(ipywidgets.HTML('a'))"}) == ["planted"]
