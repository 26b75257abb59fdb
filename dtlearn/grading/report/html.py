"""A verdict for a notebook: one piece of static HTML, and plain text beside it for where HTML is not shown.

No script and nothing from outside. Colours come from JupyterLab's theme where there is one and fit light and dark
pages where not; no colour stands alone. Styles are inline, so that it still reads well where a viewer removes them.
"""

import re
import textwrap
from collections.abc import Iterable, Sequence
from html import escape

from ...runtime.words import counted
from ..verdict import Outcome, Result, Verdict
from . import console, words
from .learner_view import FeedbackLevel, learner_view
from .safe import one_line

_COLOURS = {
    "passed": "var(--jp-success-color1, #2e9e44)",
    "failed": "var(--jp-error-color1, #e5484d)",
    "crashed": "var(--jp-error-color1, #e5484d)",
    "timeout": "#c77700",  # the theme's own orange is too pale to read on white
    "error": "#c77700",
    "running": "var(--jp-info-color1, #0f7fc9)",
}
_QUIET = "var(--jp-border-color1, #8a8a8a)"
_SIGNS = {"passed": "✓", "failed": "✗", "crashed": "✗", "timeout": "◷", "error": "!", "running": "…"}
_TINT = "rgba(128, 128, 128, 0.13)"  # darker on light, lighter on dark
_LINE = "1px solid rgba(128, 128, 128, 0.35)"
_CODE = "font-family: var(--jp-code-font-family, monospace); font-size: 0.93em"
_PRE = f"{_CODE}; margin: 0.5em 0; padding: 0.5em 0.7em; background: {_TINT}; overflow-x: auto; white-space: pre"
_CELL = f"padding: 0.15em 0.9em; border: {_LINE}; text-align: left; background: none"
_PAGE = '<!DOCTYPE html>\n<html lang="en"><meta charset="utf-8"><title>{title}</title><body>{body}</body></html>\n'
_COLUMNS = 100  # of lines that keep their form
_FOLD_FROM = 25  # lines of one block beyond which it is folded


def html(verdict: Verdict, *, level: FeedbackLevel = "category") -> str:
    """The whole report."""
    shown = learner_view(verdict, level)
    parts = [_head(shown)]
    if shown.state == "not-attempted":
        text = words.not_attempted(shown).removeprefix("Not attempted yet. ")  # the head says so
        command = words.hint_command(shown)
        parts.append(_p(escape(text).replace(escape(command), _command(command))))
    else:
        parts.append(_grid(shown.results))
        if shown.state == "error":
            report = "\n".join(words.report_lines(shown))
            parts += [_p(escape(words.NOT_YOUR_FAULT)), _p(escape(words.SEND_THIS)), _pre(report, "what to send")]
        elif fault := shown.first_fault:
            parts += [_fault(fault), _after_fault(shown, fault)]
    if shown.withheld:
        parts.append(_p(escape(words.withheld_words(shown))))
    if shown.passed and (text := words.next_tier(shown)):
        parts.append(_p(escape(text)))
    parts += [_p(escape(f"Note: {note}")) for note in words.other_notes(shown)]
    return _card(shown.state, f"{shown.exercise}: {words.state_words(shown)}", parts)


def page(title: str, parts: Iterable[str]) -> str:
    """A whole file of such pieces."""
    return _PAGE.format(title=title, body="\n".join(parts))


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], caption: str = "", row_heads: bool = False) -> str:
    """A table whose cells are HTML already. `row_heads`: the first cell of a row says what the row is."""
    title = f'<caption style="text-align: left; font-weight: bold">{caption}</caption>' if caption else ""
    top = "".join(f'<th scope="col" style="{_CELL}">{head}</th>' for head in heads)
    lines = [
        '<table style="border-collapse: collapse; table-layout: auto; margin: 0.6em 0; font-size: 0.95em">'
        f'{title}<thead><tr style="background: none">{top}</tr></thead><tbody>'
    ]
    for row in rows:
        cells = [f'<td style="{_CELL}">{cell}</td>' for cell in row]
        if row_heads:
            cells[0] = f'<th scope="row" style="{_CELL}; font-weight: normal">{row[0]}</th>'
        lines.append(f'<tr style="background: none">{"".join(cells)}</tr>')
    return "\n".join(lines) + "</tbody></table>"


def running(exercise: str, title: str, results: Sequence[Result], done: int, total: int) -> str:
    """The state of a grading that is still going on: results so far, and how many of how many are done."""
    so_far = learner_view(Verdict(exercise, title, "skipped", 0.0, 0.0, results=tuple(results)))
    bar = f'<progress value="{done:d}" max="{max(total, 1):d}" style="vertical-align: middle"></progress>'
    below = f'<div style="margin-top: 0.25em">{bar} {done:d} of {total:d} runs done</div>'
    head = f"{_sign('running', 'running')} {_title(so_far)}{below}"
    return _card("running", f"{so_far.exercise}: running", [head, _grid(so_far.results)], live=True)


def bundle(verdict: Verdict) -> dict[str, str]:
    """What a notebook displays: HTML, and the console's text."""
    return {"text/html": html(verdict), "text/plain": console.console(verdict)}


def running_bundle(exercise: str, title: str, results: Sequence[Result], done: int, total: int) -> dict[str, str]:
    """The report while a check runs, as HTML and as text."""
    last = console.progress(results[-1], done, total) if results else f"0 of {total}"
    return {"text/html": running(exercise, title, results, done, total), "text/plain": one_line(last)}


def _card(state: str, label: str, parts: Sequence[str], live: bool = False) -> str:
    style = (
        f"border: {_LINE}; border-left: 5px solid {_COLOURS.get(state, _QUIET)}; border-radius: 3px; "
        "padding: 0.6em 1em 0.7em; margin: 0.3em 0; max-width: 60em; line-height: 1.45; "
        "font-family: var(--jp-content-font-family, system-ui, sans-serif)"
    )
    role = "status" if live else "region"
    body = "\n".join(part for part in parts if part)
    return f'<section role="{role}" aria-label="{escape(label)}" style="{style}">\n{body}\n</section>\n'


def _head(verdict: Verdict) -> str:
    tier = words.tier_words(verdict)
    facts = [words.score_words(verdict), f"tier: {tier}" if tier else "", words.meta_words(verdict)]
    line = " · ".join(escape(fact) for fact in facts if fact and verdict.state != "not-attempted")
    below = f'<div style="margin-top: 0.25em">{line}</div>' if line else ""
    return f"{_sign(verdict.state, words.state_words(verdict))} {_title(verdict)}{below}"


def _sign(state: str, text: str) -> str:
    sign = f"{_SIGNS[state]} " if state in _SIGNS else ""
    colour = f"; color: {_COLOURS[state]}" if state in _COLOURS else ""
    return f'<strong style="margin-right: 0.6em{colour}">{sign}{escape(text[:1].upper() + text[1:])}</strong>'


def _title(verdict: Verdict) -> str:
    return f'<strong>{escape(verdict.title)}</strong> <code style="{_CODE}">{escape(verdict.exercise)}</code>'


def _grid(results: Sequence[Result]) -> str:
    """Cases down, world sizes across, as a table."""
    sizes, rows = words.grid(results)
    heads = ["case", *(counted(size, "rank") for size in sizes)]
    cells = [[escape(case), *map(_mark, states)] for case, states in rows]
    return table(heads, cells, row_heads=True) if rows else ""


def _mark(state: Outcome | None) -> str:
    mark = words.MARKS[state or "skipped"]
    if state not in _COLOURS:
        return f'<span style="opacity: 0.7">{mark}</span>'
    weight = "normal" if state == "passed" else "bold"
    return f'<span style="color: {_COLOURS[state]}; font-weight: {weight}">{_SIGNS[state]} {mark}</span>'


def _fault(fault: Result) -> str:
    where = words.where(fault)
    code = f' <code style="{_CODE}; opacity: 0.8">{escape(fault.code)}</code>' if fault.code else ""
    head = f"<strong>{escape(where[:1].upper() + where[1:]) or 'The fault'}</strong>{code}"
    parts = [_p(f"{head}<br>{_prose(fault.headline)}")]
    for fixed, lines in words.blocks(fault.details):
        if fixed:
            kept = console.wrap_fixed(textwrap.dedent("\n".join(lines)).split("\n"), _COLUMNS)
            parts.append(_pre("\n".join(kept), "calls and lines"))
        else:
            parts += [_p(_prose(line)) for line in lines]
    return "\n".join(parts)


def _after_fault(verdict: Verdict, fault: Result) -> str:
    parts = [_p(_prose(also))] if (also := words.other_faults(verdict)) else []
    if fault.advice:
        parts.append(_p(f"<strong>Hint:</strong> {_prose(fault.advice)}"))
    commands = f"More hints: {_command(words.hint_command(verdict))}"
    if repeat := words.repeat_command(verdict):
        commands += f"<br>The same inputs: {_command(repeat)}"
    return "\n".join([*parts, f'<div style="margin-top: 0.6em; font-size: 0.93em">{commands}</div>'])


def _pre(text: str, label: str) -> str:
    """Lines that keep their form; reachable by keyboard, as they may scroll; folded if there are many."""
    block = f'<pre tabindex="0" role="region" aria-label="{label}" style="{_PRE}">{escape(text)}</pre>'
    count = text.count("\n") + 1
    return f"<details><summary>{count} lines</summary>{block}</details>" if count > _FOLD_FROM else block


def _p(inner: str) -> str:
    return f'<p style="margin: 0.5em 0">{inner}</p>'


def _prose(text: str) -> str:
    """A sentence whose `names` are set as code."""
    return re.sub(r"`([^`\n]+)`", rf'<code style="{_CODE}">\1</code>', escape(text))


def _command(text: str) -> str:
    style = f"{_CODE}; background: {_TINT}; padding: 0.05em 0.35em; border-radius: 3px"
    return f'<code style="{style}">{escape(text)}</code>'
