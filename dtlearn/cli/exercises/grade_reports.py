"""The files that `dtlearn grade` writes: which formats there are, and what makes them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...runtime.machine.whole_file import write_whole
from ...grading.verdict import Verdict


@dataclass(frozen=True)
class Format:
    """One kind of report.

    Attributes:
        help: for the option's help.
        make: its text, from all verdicts.
    """

    help: str
    make: Callable[[Sequence[Verdict]], str]


def _json(verdicts: Sequence[Verdict]) -> str:
    return json.dumps([json.loads(v.to_json()) for v in verdicts], indent=1) + "\n"


def _html(verdicts: Sequence[Verdict]) -> str:
    from ...grading.report.html import html

    body = "\n".join(html(v) for v in verdicts)
    return f'<!DOCTYPE html>\n<html lang="en"><meta charset="utf-8"><title>dtlearn grade</title>\n{body}</html>\n'


def _junit(verdicts: Sequence[Verdict]) -> str:
    from ...grading.report.junit import junit

    return junit(verdicts)


def _gradescope(verdicts: Sequence[Verdict]) -> str:
    from ...grading.classroom.gradescope import gradescope

    return gradescope(verdicts)


FORMATS = {
    "json": Format("write a list of verdicts, as the schema verdict-1.json says", _json),
    "junit": Format("write JUnit XML, for continuous integration", _junit),
    "gradescope": Format("write Gradescope's results.json", _gradescope),
    "html": Format("write a page", _html),
}


def write_reports(verdicts: Sequence[Verdict], files: Mapping[str, Path | None]) -> None:
    """Write the reports that were asked for. Raises ValueError if a file cannot be written."""
    for name, path in files.items():
        if path is None:
            continue
        try:
            write_whole(path.absolute(), FORMATS[name].make(verdicts))
        except OSError as error:
            raise ValueError(f"--{name}: {path} cannot be written: {error.strerror or error}") from error
