"""The class summary as one piece of static HTML."""

from html import escape

from ..report.html import table
from .summary import BANDS, ClassSummary, ExerciseSummary

_BAR = "display: inline-block; height: 0.8em; background: var(--jp-info-color1, #0f7fc9)"


def summary_html(summary: ClassSummary) -> str:
    """Tables for every exercise, and the list of submissions that need a person."""
    parts = [f"<p>{summary.size}</p>"]
    if summary.needs_a_person:
        rows = [[escape(cell) for cell in row] for row in summary.needs_a_person]
        parts.append(table(("submission", "exercise", "fault"), rows, summary.not_graded))
    parts += [_exercise(part) for part in summary.exercises]
    rows = [[escape(line)] for line in summary.accounts]
    parts += [table(("note",), rows, "What was handed in")] if rows else []
    style = "max-width: 60em; line-height: 1.45; font-family: var(--jp-content-font-family, system-ui, sans-serif)"
    return f'<section role="region" aria-label="class summary" style="{style}">\n' + "\n".join(parts) + "\n</section>\n"


def _exercise(part: ExerciseSummary) -> str:
    most = max(*part.bands, 1)
    bands = [
        [band, f'{n} <span aria-hidden="true" style="{_BAR}; width: {10 * n / most:.1f}em"></span>']
        for band, n in zip(BANDS, part.bands, strict=True)
    ]
    codes = [
        [f"{n} of {part.submissions}", f"<code>{escape(code)}</code>", escape(text), escape(said)]
        for code, n, text, said in part.codes
    ]
    parts = [
        f"<h3>{escape(part.title)} <code>{escape(part.exercise)}</code></h3>",
        f"<p>{escape(part.facts)}</p>",
        table(("share", "submissions"), bands, "Share of the points"),
        table(("submissions", "code", "meaning", "said most often"), codes, "First faults") if codes else "",
    ]
    return "\n".join(p for p in parts if p)
