import ast
import inspect
import textwrap

import pytest

from dtlearn.notebook.source import _without_docstrings, quote, show_source
from dtlearn.runtime.record import record


def test_quotes_the_live_lines_with_their_place():
    source = quote(record.merge)
    lines, first = inspect.getsourcelines(record.merge)
    assert source.caption == f"dtlearn/runtime/record/record.py, lines {first}-{first + len(lines) - 1}"
    assert source.code == "".join(lines)
    assert str(source).startswith(f"# {source.caption}\ndef merge(")


def test_a_method_is_quoted_without_its_indentation():
    assert quote(record.Record.nbytes).code.startswith("def nbytes(self,")


def test_a_module_is_quoted_from_its_first_line():
    source = quote(record)
    assert source.code == inspect.getsource(record)
    assert ", lines 1-" in source.caption


def test_docstrings_can_be_left_out():
    source = quote(record.Record, docstring=False)
    assert '"""' not in source.code
    assert "def nbytes(self" in source.code
    assert source.caption.endswith("(docstrings left out)")
    ast.parse(source.code)


def test_only_docstrings_are_cut():
    code = textwrap.dedent('''
        class A:
            """Of the class,
            on two lines."""

            x = """not a docstring"""

            def f(self):
                """All of the body."""

            async def g(self):
                """First."""
                return "kept"  # a comment
    ''').lstrip()
    assert (
        _without_docstrings(code)
        == textwrap.dedent('''
        class A:
            x = """not a docstring"""

            def f(self):
                ...

            async def g(self):
                return "kept"  # a comment
    ''').lstrip()
    )


def test_html_shows_the_code_escaped_and_no_path_of_the_machine():
    source = quote(record.Event)
    html = source._repr_html_()
    assert "dtlearn/runtime/record/event.py, lines" in html
    assert "-&gt;" in html and "->" not in html
    assert str(inspect.getsourcefile(record)).rpartition("/dtlearn/")[0] not in html + str(source)
    assert html == quote(record.Event)._repr_html_()


def test_code_of_other_packages_is_placed_too():
    assert quote(textwrap.dedent).caption.startswith("textwrap.py, lines ")
    assert quote(pytest.fixture).caption.startswith("_pytest/fixtures.py, lines ")


def test_show_source_displays(monkeypatch):
    shown = []
    monkeypatch.setattr("IPython.display.display", shown.append)
    show_source(record.merge, docstring=False)
    assert shown == [quote(record.merge, docstring=False)]


@pytest.mark.parametrize("thing", [len, 3, "text"])
def test_what_has_no_source_is_refused(thing):
    with pytest.raises(ValueError, match="has no Python source"):
        quote(thing)


def test_source_can_be_folded_under_a_line():
    page = quote(record.merge, summary="The package's <own>")._repr_html_()
    assert page.startswith("<details><summary>The package&#x27;s &lt;own&gt;</summary><figure")
    assert page.endswith("</figure></details>")
    assert "<details>" not in quote(record.merge)._repr_html_()
