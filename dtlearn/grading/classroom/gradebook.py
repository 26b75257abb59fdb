"""Scores of a class as tables: the columns of nbgrader's export, and Canvas's gradebook.

What was not graded has empty scores: it is no zero. (Canvas then clears a score that it had before: grade it again, or
fill it in, first.) No cell can begin a formula.

Formats: nbgrader, `CsvExportPlugin` (https://nbgrader.readthedocs.io/en/stable/plugins/export-plugin.html). Canvas,
"How do I import grades in the Gradebook?" (Instructor Guide); its importer finds students by ID, SIS ids or name, and
reads the row "Points Possible".
"""

import csv
import io
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from ..report.safe import csv_cell
from ..verdict import Verdict
from .students import Student, student_of

Class = Mapping[str, Sequence[Verdict]]  # verdicts by submission, as `grade_class` returns them
CsvCell = str | float
NBGRADER = (
    *("assignment", "duedate", "timestamp", "student_id", "last_name", "first_name", "email"),
    *("raw_score", "late_submission_penalty", "score", "max_score"),
)
CANVAS = ("Student", "ID", "SIS User ID", "SIS Login ID", "Section")


def nbgrader_csv(
    verdicts: Class,
    students: Mapping[str, Student],
    *,
    handed_in: Mapping[str, datetime],
    due: Mapping[str, datetime],
    penalties: Mapping[tuple[str, str], float],
    columns: Mapping[str, str],
) -> str:
    """A row per submission and exercise. Raises ValueError for a time without a time zone.

    Args:
        handed_in, due: by submission; by exercise.
        penalties: points off for lateness, by submission and exercise.
        columns: by exercise, what nbgrader calls the assignment; default: the exercise's id.
    """
    rows: list[list[CsvCell]] = [list(NBGRADER)]
    for submission, of_submission in verdicts.items():
        student = student_of(submission, students)
        who = (student.student_id, student.last_name, student.first_name, student.email)
        for verdict in of_submission:
            penalty, raw = penalties.get((submission, verdict.exercise), 0.0), _score(verdict)
            scores = (raw, float(penalty), round(max(0.0, raw - penalty), 4) if isinstance(raw, float) else "")
            times = (_time(due.get(verdict.exercise)), _time(handed_in.get(submission)))
            name = columns.get(verdict.exercise, verdict.exercise)
            rows.append([name, *times, *who, *scores, float(verdict.points)])
    return csv_text(rows)


def canvas_csv(verdicts: Class, students: Mapping[str, Student], *, columns: Mapping[str, str]) -> str:
    """A row per student, a column per exercise.

    `columns`: by exercise, the heading of its column; for an assignment that Canvas has already, take over the one that
    Canvas exports, "Average the gradients (48151)". Default: the exercise's id, which makes a new one.
    """
    exercises = {v.exercise: v.points for of_submission in verdicts.values() for v in of_submission}
    rows: list[list[CsvCell]] = [[*CANVAS, *(columns.get(e, e) for e in exercises)]]
    rows.append(["    Points Possible", *[""] * (len(CANVAS) - 1), *map(float, exercises.values())])
    for submission, of_submission in verdicts.items():
        student = student_of(submission, students)
        scores = {v.exercise: _score(v) for v in of_submission}
        ids = (student.canvas_id, student.sis_user_id, student.sis_login_id or student.student_id, student.section)
        rows.append([student.name, *ids, *(scores.get(e, "") for e in exercises)])
    return csv_text(rows)


def _score(verdict: Verdict) -> CsvCell:
    return round(float(verdict.score), 4) if verdict.final else ""


def _time(moment: datetime | None) -> str:
    """A time as nbgrader writes it: in UTC, without saying so."""
    if moment is None:
        return ""
    if moment.tzinfo is None:
        raise ValueError(f"{moment} has no time zone: use datetime(..., tzinfo=...)")
    return str(moment.astimezone(UTC).replace(tzinfo=None))


def csv_text(rows: Sequence[Sequence[CsvCell]]) -> str:
    """A table, in which no cell can begin a formula."""
    out = io.StringIO(newline="")
    writer = csv.writer(out, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
    for row in rows:
        writer.writerow([_cell(cell) for cell in row])
    return out.getvalue()


def _cell(cell: CsvCell) -> CsvCell:
    if not isinstance(cell, str):
        return cell
    return cell if cell.strip() == "Points Possible" else csv_cell(cell)  # Canvas's own has spaces before it
