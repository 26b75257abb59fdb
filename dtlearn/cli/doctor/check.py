"""One line of the tables of `dtlearn doctor`, how it looks, and the rule that no check may end the doctor."""

import dataclasses
import json
import shutil
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

from ... import __version__
from ...runtime.words import first_line

LineState = Literal["ok", "note", "problem"]
_WIDTHS = (8, 18)  # columns of the table: state, name


@dataclass(frozen=True)
class Line:
    """What one check found."""

    name: str  # what was looked at
    state: LineState  # "ok"; "note": chapters run, but it is good to know; "problem": it stops chapters from running
    found: str  # one clause
    advice: str = ""  # what to do; "" if there is nothing to do


def attempt(name: str, check: Callable[..., Line], *arguments: Any) -> Line:
    """What `check` found. One that itself fails becomes a note: that says nothing about the machine."""
    try:
        return check(*arguments)
    except Exception as error:
        return Line(name, "note", f"could not be checked ({type(error).__name__}: {first_line(error)})")


def table(checks: Iterable[Line], width: int) -> list[str]:
    """Lines of at most `width` characters: state, name, what was found, and what to do below it."""
    lines = []
    indent = " " * sum(_WIDTHS)
    for check in checks:
        state = check.state.upper() if check.state == "problem" else check.state
        start = f"{state:{_WIDTHS[0]}}{check.name:{_WIDTHS[1]}}"
        lines += textwrap.wrap(check.found, width, initial_indent=start, subsequent_indent=indent)
        lines += textwrap.wrap(check.advice, width, initial_indent=f"{indent}-> ", subsequent_indent=f"{indent}   ")
    return lines


def last_line(to_fix: str, seconds: float, well: bool = True) -> str:
    """What ends a report. `to_fix`: the problems by name; "" if there are none."""
    end = f" To fix: {to_fix} (-> above says how)." if to_fix else " Nothing to fix." if well else ""
    return f"Checked in {seconds:.1f} s.{end}"


def terminal_width() -> int:
    return min(120, shutil.get_terminal_size((120, 24)).columns)


def as_json(report: Any, ok: bool, **more: Any) -> str:
    """A report, which is a dataclass, for other programs; `ok` is what the exit code says."""
    plain = {"dtlearn": __version__, "ok": ok, **more, **dataclasses.asdict(report)}
    return json.dumps(plain, indent=2, ensure_ascii=False)
