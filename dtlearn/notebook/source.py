"""Quote the live source of the package in a notebook, so that what is read is what runs."""

import ast
import html
import inspect
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Inline styles survive where style sheets are stripped. The background is given with the colours, for dark themes.
_BOX = (
    "background:#f7f8fa;color:#1f2328;padding:0.7em 1em;border-left:3px solid #8a8f98;overflow-x:auto;white-space:pre;"
    "font-size:13px"  # 100 characters fit beside the file browser in a window of 1280 pixels
)


@dataclass(frozen=True)
class Source:
    """A piece of source code with its place: highlighted HTML in a notebook, plain text elsewhere."""

    code: str
    caption: str
    summary: str = ""  # if given, a notebook shows this line, and the code when it is opened

    def __str__(self) -> str:
        return f"# {self.caption}\n{self.code}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from pygments import highlight  # type: ignore[import-untyped]
        from pygments.formatters import HtmlFormatter  # type: ignore[import-untyped]
        from pygments.lexers import PythonLexer  # type: ignore[import-untyped]

        from dtlearn.viz.picture import folded

        marked = highlight(self.code, PythonLexer(), HtmlFormatter(noclasses=True, nowrap=True, style="xcode"))
        figure = (
            f'<figure style="margin:0"><figcaption><code>{html.escape(self.caption)}</code></figcaption>'
            f'<pre style="{_BOX}"><code style="background:none;color:inherit;white-space:inherit">{marked}</code></pre>'
            "</figure>"
        )
        return folded(self.summary, figure) if self.summary else figure


def show_source(obj: Any, docstring: bool = True, summary: str = "") -> None:
    """Show the source of a function, class or module in the running cell.

    Args:
        obj: what to quote.
        docstring: False leaves docstrings out, where the text around the cell says it already.
        summary: folds the source under this line, where it would give an exercise's answer away.

    Raises:
        ValueError: the object has no Python source, such as a built-in.
    """
    from IPython.display import display

    display(quote(obj, docstring=docstring, summary=summary))


def quote(obj: Any, docstring: bool = True, summary: str = "") -> Source:
    """The source of a function, class or module, as `show_source` shows it."""
    name = getattr(obj, "__name__", type(obj).__name__)
    try:
        lines, first = inspect.getsourcelines(obj)
    except (TypeError, OSError):
        raise ValueError(f"{name} has no Python source to show: give a function, a class or a module") from None
    first = max(1, first)  # a module starts at "line 0"
    caption = f"{_file_of(obj)}, lines {first}-{first + len(lines) - 1}"
    code = textwrap.dedent("".join(lines))
    if not docstring:
        code = _without_docstrings(code)
        caption += " (docstrings left out)"
    return Source(code.rstrip() + "\n", caption, summary)


def _file_of(obj: Any) -> str:
    """The file of an object, from its package on: the same text on every machine."""
    module = obj if inspect.ismodule(obj) else inspect.getmodule(obj)
    file = getattr(module, "__file__", None)
    if module is None or file is None:
        return "this notebook"
    package = sys.modules.get(module.__name__.partition(".")[0])
    base = getattr(package, "__file__", None)
    if base is None or Path(base).name != "__init__.py":
        return Path(file).name
    return Path(file).relative_to(Path(base).parent.parent).as_posix()


def _without_docstrings(code: str) -> str:
    """Cut the docstrings out of code; a body that was only a docstring becomes `...`."""
    lines = code.splitlines()
    for node in ast.walk(ast.parse(code)):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if ast.get_docstring(node, clean=False) is None:
            continue
        doc = node.body[0]
        assert doc.end_lineno is not None
        indent = " " * doc.col_offset
        # Lines are emptied now and dropped afterwards: dropping them here would move the ones still to cut.
        following = node.body[1].lineno - 1 if len(node.body) > 1 else doc.end_lineno
        blank = [i for i in range(doc.end_lineno, following) if not lines[i].strip()]
        for i in [*range(doc.lineno - 1, doc.end_lineno), *blank]:
            lines[i] = "\0"
        if len(node.body) == 1 and not isinstance(node, ast.Module):
            lines[doc.lineno - 1] = f"{indent}..."
    return "\n".join(line for line in lines if line != "\0") + "\n"
