"""One finding of `dtlearn doctor`, how it looks, and the rule that no check may end the doctor."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from ...runtime.words import first_line

State = Literal["ok", "note", "problem"]
_WIDTHS = (8, 18)  # columns of the table: state, name


@dataclass(frozen=True)
class Check:
    """What one check found.

    Attributes:
        name: what was looked at.
        state: "ok"; "note": chapters run, but it is good to know; "problem": it stops chapters from running.
        found: one clause.
        advice: what to do; "" if there is nothing to do.
    """

    name: str
    state: State
    found: str
    advice: str = ""


def attempt(name: str, check: Callable[[], Check]) -> Check:
    """The finding of `check`. One that itself fails becomes a note: that says nothing about the machine."""
    try:
        return check()
    except Exception as error:
        return Check(name, "note", f"could not be checked ({type(error).__name__}: {first_line(error)})")


def table(checks: Iterable[Check], width: int) -> list[str]:
    """Lines of at most `width` characters: state, name, what was found, and what to do below it."""
    lines = []
    indent = " " * sum(_WIDTHS)
    for check in checks:
        state = check.state.upper() if check.state == "problem" else check.state
        start = f"{state:{_WIDTHS[0]}}{check.name:{_WIDTHS[1]}}"
        lines += textwrap.wrap(check.found, width, initial_indent=start, subsequent_indent=indent)
        lines += textwrap.wrap(check.advice, width, initial_indent=f"{indent}-> ", subsequent_indent=f"{indent}   ")
    return lines
