"""The files that `dtlearn grade` writes: which formats there are, and what makes them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ...grading.classroom.gradescope import gradescope
from ...grading.report.html import html, page
from ...grading.report.junit import junit
from ...grading.verdict import Verdict
from ...runtime.machine.whole_file import write_whole


def _json(verdicts: Sequence[Verdict]) -> str:
    return json.dumps([json.loads(v.to_json()) for v in verdicts], indent=1) + "\n"


def _html(verdicts: Sequence[Verdict]) -> str:
    return page("dtlearn grade", map(html, verdicts))


# Of each format: for the option's help, and what makes its text.
FORMATS: dict[str, tuple[str, Callable[[Sequence[Verdict]], str]]] = {
    "json": ("write a list of verdicts, as the schema verdict-1.json says", _json),
    "junit": ("write JUnit XML, for continuous integration", junit),
    "gradescope": ("write Gradescope's results.json", gradescope),
    "html": ("write a page", _html),
}


def write_reports(verdicts: Sequence[Verdict], files: Mapping[str, Path | None]) -> None:
    """Write the reports that were asked for. Raises ValueError if a file cannot be written."""
    for name, path in files.items():
        if path is None:
            continue
        try:
            write_whole(path.absolute(), FORMATS[name][1](verdicts))
        except OSError as error:
            raise ValueError(f"--{name}: {path} cannot be written: {error.strerror or error}") from error
