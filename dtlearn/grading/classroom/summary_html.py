"""The class summary as one piece of static HTML."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from ..report import words
from .summary import BANDS, ClassSummary, ExerciseSummary

_CELL = "padding: 0.15em 0.9em; border: 1px solid rgba(128, 128, 128, 0.35); text-align: left; background: none"
_BAR = "display: inline-block; height: 0.8em; background: var(--jp-info-color1, #0f7fc9)"


def summary_html(summary: ClassSummary) -> str:
    """Tables for every exercise, and the list of submissions that need a person."""
    parts = [
        f"<p>{words.count(summary.submissions, 'submission')}, {words.count(len(summary.exercises), 'exercise')}</p>"
    ]
    if summary.needs_a_person:
        rows = [[escape(cell) for cell in row] for row in summary.needs_a_person]
        parts.append(_table("The grader failed; a person has to look", ("submission", "exercise", "fault"), rows))
    parts += [_exercise(one) for one in summary.exercises]
    style = "max-width: 60em; line-height: 1.45; font-family: var(--jp-content-font-family, system-ui, sans-serif)"
    return f'<section role="region" aria-label="class summary" style="{style}">\n' + "\n".join(parts) + "\n</section>\n"


def _exercise(one: ExerciseSummary) -> str:
    tiers = ", ".join(f"{n} {tier}" for tier, n in one.tiers)
    facts = f"{one.passed} of {one.submissions} passed{f' ({escape(tiers)})' if tiers else ''}; "
    facts += f"mean {words.number(one.mean)}, median {words.number(one.median)} of {words.number(one.points)}"
    most = max(*one.bands, 1)
    bands = [
        [band, f'{n} <span aria-hidden="true" style="{_BAR}; width: {10 * n / most:.1f}em"></span>']
        for band, n in zip(BANDS, one.bands, strict=True)
    ]
    codes = [[f"{n} of {one.submissions}", f"<code>{escape(code)}</code>", escape(text)] for code, n, text in one.codes]
    parts = [
        f"<h3>{escape(one.title)} <code>{escape(one.exercise)}</code></h3>",
        f"<p>{facts}</p>",
        _table("Share of the points", ("share", "submissions"), bands),
        _table("First faults", ("submissions", "code", "meaning"), codes) if codes else "",
    ]
    return "\n".join(p for p in parts if p)


def _table(caption: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Cells are HTML already."""
    top = "".join(f'<th scope="col" style="{_CELL}">{head}</th>' for head in heads)
    body = "\n".join(
        '<tr style="background: none">' + "".join(f'<td style="{_CELL}">{c}</td>' for c in row) + "</tr>"
        for row in rows
    )
    return (
        '<table style="border-collapse: collapse; table-layout: auto; margin: 0.6em 0; font-size: 0.95em">'
        f'<caption style="text-align: left; font-weight: bold">{caption}</caption>'
        f'<thead><tr style="background: none">{top}</tr></thead><tbody>\n{body}</tbody></table>'
    )
