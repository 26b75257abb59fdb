"""Writes what a graded class leaves: feedback for each student, tables for gradebooks, a summary for the teacher."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from ...runtime.machine.whole_file import write_whole
from ..report.console import console
from ..report.html import html, page
from ..report.junit import junit
from ..report.learner_view import FeedbackLevel
from ..verdict import Verdict
from .class_rules import Rules
from .gradebook import canvas_csv, nbgrader_csv
from .gradescope import gradescope
from .lti import lti_scores
from .students import Student
from .submissions import safe_name
from .summary import ClassSummary, summarise, summary_console
from .summary_html import summary_html


def export(
    folder: Path,
    verdicts: Mapping[str, Sequence[Verdict]],
    students: Mapping[str, Student],
    level: FeedbackLevel,
    graded: datetime,
    meanings: Mapping[str, str],
    rules: Rules,
    penalties: Mapping[tuple[str, str], float],
    handed_in: Mapping[str, datetime],
    accounts: Sequence[str],
) -> ClassSummary:
    """Write everything below `folder`; see `docs/instructor.md` for the files.

    Args:
        verdicts, students: by submission; scores with `penalties` taken off.
        level: of what students are told.
        graded: now, with a time zone.
        meanings: of the codes that only single chapters use.
        rules, penalties, handed_in, accounts: see `class_rules.settle` and `ClassSummary`.
    """
    for student, of_student in verdicts.items():
        own = folder / safe_name(student)
        own.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(own / "feedback.html", page("Feedback", (html(verdict, level=level) for verdict in of_student)))
        write_whole(own / "feedback.txt", "\n".join(console(verdict, level=level) for verdict in of_student))
        write_whole(own / "gradescope.json", gradescope(of_student, level=level))
        write_whole(own / "junit.xml", junit(of_student, level=level, graded=graded))
    raw = {
        who: [replace(v, score=v.score + penalties[who, v.exercise]) for v in of_student]
        for who, of_student in verdicts.items()
    }
    exercises = {v.exercise for of_student in verdicts.values() for v in of_student}
    due = {e: moment for e in exercises if (moment := rules.due.get(e) or rules.due.get(e.partition(".")[0]))}
    table = nbgrader_csv(raw, students, handed_in=handed_in, due=due, penalties=penalties, columns=rules.nbgrader)
    write_whole(folder / "nbgrader.csv", table)
    write_whole(folder / "canvas.csv", canvas_csv(verdicts, students, columns=rules.canvas))
    write_whole(folder / "lti.jsonl", lti_scores(verdicts, students, graded=graded, level=level))
    summary = replace(summarise(verdicts, meanings=meanings), accounts=tuple(accounts))
    write_whole(folder / "summary.txt", summary_console(summary))
    write_whole(folder / "summary.html", page("Summary", [summary_html(summary)]))
    return summary
