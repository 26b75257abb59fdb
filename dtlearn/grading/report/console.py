"""A verdict for the terminal: 80 columns, readable without colour."""

import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import TextIO

from ..verdict import Result, Verdict
from . import words
from .learner_view import FeedbackLevel, learner_view

WIDTH = 80
Painter = Callable[[str, str], str]  # a state or "bold", and the text to be painted
_COLOURS = {"passed": "32", "failed": "31", "timeout": "33", "crashed": "31", "error": "35"}


def console(verdict: Verdict, *, level: FeedbackLevel = "category", colour: bool = False) -> str:
    """The whole report, ending in a newline. `colour`: with escape sequences; see `wants_colour`."""
    shown = learner_view(verdict, level)
    paint = _painter(colour)
    if shown.state == "not-attempted":
        return _fill(words.not_attempted(shown)) + "\n"
    parts = [_head(shown, paint)]
    if table := _grid(shown.results, paint):
        parts.append(table)
    if shown.state == "error":
        parts.append(_grader_error(shown))
    elif fault := shown.first_fault:
        parts += [_fault(fault, paint), *_after_fault(shown)]
    if shown.withheld:
        parts.append(_fill(words.withheld_words(shown)))
    if shown.passed and (text := words.next_tier(shown)):
        parts.append(_fill(text))
    parts += [_fill(f"Note: {note}") for note in words.other_notes(shown)]
    return "\n\n".join(parts) + "\n"


def progress(result: Result, done: int, total: int) -> str:
    """One line while it runs. Hidden cases are not named."""
    case = "a hidden case" if result.hidden else words.where(result)
    return f"{done:>{len(str(total))}} of {total}  {words.MARKS[result.state]:<7}  {case}"


def wants_colour(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Whether a stream is a terminal that may be coloured (https://no-color.org)."""
    return stream.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


def wrap_fixed(lines: Sequence[str], width: int) -> list[str]:
    """Lines whose form matters. A table that is too wide loses its last column to lines of its own."""
    if all(len(line) <= width for line in lines):
        return list(lines)
    cut = _last_column(lines)
    if not 0 < cut <= width:
        return [part for line in lines for part in _hard(line, width)]
    parts = [(line[:cut].rstrip(), line[cut:].strip()) for line in lines]
    return [row for head, tail in parts for row in [head, *(_hard(" " * 6 + tail, width) if tail else [])]]


def _last_column(lines: Sequence[str]) -> int:
    """Where the last column of a table begins; 0 if the lines are no table."""
    gaps = [m.end() for m in re.finditer(r"(?<=\S) {2,}(?=\S)", max(lines, key=len))]
    fits = gaps and all(not line[gaps[-1] - 2 : gaps[-1]].strip() for line in lines)
    return gaps[-1] if fits and len(lines) > 1 else 0


def fault_text(fault: Result) -> str:
    """One fault in full, with its hint, as plain text. The result must come from a `learner_view`."""
    text = _fault(fault, _painter(False))
    return f"{text}\n\n{_fill(f'Hint: {fault.advice}')}" if fault.advice else text


def _head(verdict: Verdict, paint: Painter) -> str:
    state = paint(verdict.state, words.state_words(verdict).upper())
    tier = words.tier_words(verdict)
    facts = [state, words.score_words(verdict), f"tier: {tier}" if tier else "", words.meta_words(verdict)]
    name = f"{verdict.exercise}  {verdict.title}".rstrip()
    return f"{paint('bold', _fill(name))}\n{'   '.join(f for f in facts if f)}"


def _grid(results: Sequence[Result], paint: Painter) -> str:
    """Cases down, world sizes across."""
    sizes, rows = words.grid(results)
    if not rows:
        return ""
    marks = [[words.MARKS[state or "skipped"] for state in states] for _, states in rows]
    columns = [max(4, len(str(size)), *(len(row[i]) for row in marks)) for i, size in enumerate(sizes)]
    room = WIDTH - sum(c + 2 for c in columns)
    left = min(max(len("ranks"), *(len(case) for case, _ in rows)), max(room, 12))
    heads = "".join(f"  {s:<{c}}" for s, c in zip(sizes, columns, strict=True))
    lines = [f"{'ranks':<{left}}{heads}".rstrip()]
    for case, states in rows:
        name = case if len(case) <= left else case[: left - 3] + "..."
        line = f"{name:<{left}}"
        gap = 2
        for state, column in zip(states, columns, strict=True):
            mark = words.MARKS[state or "skipped"]
            line += " " * gap + paint(state or "", mark)
            gap = 2 + column - len(mark)
        lines.append(line)
    return "\n".join(lines)


def _fault(fault: Result, paint: Painter) -> str:
    where = words.where(fault)
    title = f"{where[:1].upper()}{where[1:]}" if where else "The fault"
    code = f"  [{fault.code}]" if fault.code else ""
    lines = [paint("bold", _fill(f"{title}{code}")), _fill(fault.headline, "  ")]
    for fixed, part in words.blocks(fault.details):
        lines.append("")
        if fixed:
            lines += [f"  {line}" for line in wrap_fixed(part, WIDTH - 2)]
        else:
            lines += [_fill(line, "  ") for line in part]
    return "\n".join(lines)


def _after_fault(verdict: Verdict) -> list[str]:
    fault = verdict.first_fault
    assert fault is not None
    lines = [_fill(f"Hint: {fault.advice}")] if fault.advice else []
    lines.append(f"More hints:       {words.hint_command(verdict)}")
    if command := words.repeat_command(verdict):
        lines.append(f"The same inputs:  {command}")
    also = words.other_faults(verdict)
    return [*([_fill(also)] if also else []), "\n".join(lines)]


def _grader_error(verdict: Verdict) -> str:
    lines = [part for line in words.report_lines(verdict) for part in _hard(f"  {line}", WIDTH)]
    return "\n".join([_fill(words.NOT_YOUR_FAULT), _fill(words.SEND_THIS), "", *lines])


def _painter(colour: bool) -> Painter:
    codes = {"bold": "1", **_COLOURS} if colour else {}
    return lambda what, text: f"\x1b[{codes[what]}m{text}\x1b[0m" if what in codes else text


def _fill(text: str, indent: str = "") -> str:
    return textwrap.fill(
        text, WIDTH, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False, break_long_words=True
    )


def _hard(line: str, width: int) -> list[str]:
    """A line that is too long, broken at a space and continued further in."""
    if len(line) <= width:
        return [line]
    indent = " " * (len(line) - len(line.lstrip()))
    return textwrap.wrap(
        line, width, subsequent_indent=indent[: width // 2] + "    ", break_on_hyphens=False, drop_whitespace=True
    )
