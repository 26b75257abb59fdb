"""Who a submission belongs to: a table from the names of submissions to the identities that other systems know."""

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass, fields

from ..report.safe import csv_cell


@dataclass(frozen=True)
class Student:
    """A student, as gradebooks call them."""

    student_id: str  # in this course, and in nbgrader
    # last_name, first_name, email: for people
    last_name: str = ""
    first_name: str = ""
    email: str = ""
    # canvas_id, sis_user_id, sis_login_id, section: columns of Canvas's gradebook
    canvas_id: str = ""
    sis_user_id: str = ""
    sis_login_id: str = ""
    section: str = ""
    lti_user_id: str = ""  # what the learning platform calls the user in LTI

    @property
    def name(self) -> str:
        """ "Lovelace, Ada"; the id if there is no name."""
        return ", ".join(part for part in (self.last_name, self.first_name) if part) or self.student_id


_COLUMNS = [field.name for field in fields(Student)]


def read_students(text: str) -> dict[str, Student]:
    """Read the table: CSV with a header, in which `submission` is the name of a submission's folder or zip file.

    The other columns are the fields of `Student`, in any order; `student_id` is the submission's name where missing.
    Raises ValueError, with the line: an unknown column, a submission twice, or an id that a spreadsheet would run.
    """
    rows = csv.DictReader(io.StringIO(text.removeprefix("\ufeff"), newline=""), strict=True)
    try:
        header = [name.strip() for name in rows.fieldnames or []]
        rows.fieldnames = header
        _check_header(header)
        students: dict[str, Student] = {}
        for row in rows:
            submission, student = _read_row(row, rows.line_num)
            if submission in students:
                raise ValueError(f"line {rows.line_num} of the student table: {submission!r} was there before")
            students[submission] = student
    except csv.Error as error:
        raise ValueError(f"line {rows.line_num} of the student table is no CSV: {error}") from error
    return students


def student_of(submission: str, students: Mapping[str, Student]) -> Student:
    """The student of a submission; one who is known by its name only, if the table lacks it."""
    return students.get(submission) or Student(submission)


def _check_header(header: list[str]) -> None:
    if "submission" not in header:
        raise ValueError(
            f"the student table needs a column `submission`; its columns are {', '.join(header) or 'none'}"
        )
    if strange := [name for name in header if name not in ("submission", *_COLUMNS)]:
        raise ValueError(f"the student table has a column {strange[0]!r}; it may have {', '.join(_COLUMNS)}")


def _read_row(row: dict[str, str], line: int) -> tuple[str, Student]:
    if None in row or None in row.values():
        raise ValueError(f"line {line} of the student table has not as many cells as the header")
    values = {name: value.strip() for name, value in row.items()}
    for name, value in values.items():
        if name != "submission" and value != csv_cell(value):
            raise ValueError(
                f"line {line} of the student table: {name} {value!r} would be run by a spreadsheet, or cannot be shown"
            )
    submission = values.pop("submission")
    if not submission:
        raise ValueError(f"line {line} of the student table names no submission")
    return submission, Student(**{**values, "student_id": values.get("student_id") or submission})
