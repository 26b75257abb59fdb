import csv
import io
from dataclasses import replace
from datetime import datetime

import pytest

from dtlearn.grading.classroom.gradebook import CANVAS, NBGRADER, canvas_csv, nbgrader_csv
from dtlearn.grading.classroom.students import Student

ID = "ch03.average_gradients"
STUDENTS = {
    "ada": Student("a1", "Lovelace", "Ada", "ada@example.org", "101", "S1", "ada15", "lab 1"),
    "bo": Student("b2", "O'Neil, jr.", 'Bo "B"', "bo@example.org", "102", "S2", "bo2", "lab 1"),
}


def nbgrader(verdicts, students=None, **tables):
    tables = {**{key: {} for key in ("handed_in", "due", "penalties", "columns")}, **tables}
    return nbgrader_csv(verdicts, students or {}, **tables)


def canvas(verdicts, students=None, columns=None):
    return canvas_csv(verdicts, students or {}, columns=columns or {})


def rows_of(text):
    return list(csv.reader(io.StringIO(text, newline=""), strict=True))


def test_golden(a_class, golden, noon):
    late = {("bo", ID): 0.5}
    text = nbgrader(a_class, STUDENTS, handed_in={"ada": noon}, due={ID: noon}, penalties=late)
    golden("class.nbgrader.csv", text)
    golden("class.canvas.csv", canvas(a_class, STUDENTS, columns={ID: "Average the gradients (48151)"}))


def test_nbgrader_columns(a_class, noon):
    rows = rows_of(nbgrader(a_class, STUDENTS, handed_in={"ada": noon}, penalties={("bo", ID): 5.0}))
    assert tuple(rows[0]) == NBGRADER
    made = {row[3]: dict(zip(NBGRADER, row, strict=True)) for row in rows[1:]}
    assert made["a1"]["timestamp"] == "2026-11-20 12:00:00.250000"
    assert (made["b2"]["raw_score"], made["b2"]["score"]) == ("3.3333", "0.0")
    assert (made["finn"]["raw_score"], made["finn"]["score"]) == ("0.0", "0.0")  # a zero is a zero
    assert (made["eve"]["raw_score"], made["eve"]["score"]) == ("", "")  # for a person
    assert made["b2"]["last_name"] == "O'Neil, jr."


def test_canvas_rows(a_class, verdicts):
    other = replace(verdicts["value"], exercise="ch03.other", points=3.0, score=1.5)
    rows = rows_of(canvas({**a_class, "bo": [verdicts["value"], other]}, STUDENTS))
    assert rows[0] == [*CANVAS, ID, "ch03.other"]
    assert rows[1] == ["    Points Possible", "", "", "", "", "5.0", "3.0"]
    assert rows[2] == ["Lovelace, Ada", "101", "S1", "ada15", "lab 1", "5.0", ""]
    assert rows[3][-2:] == ["3.3333", "1.5"]
    assert next(row for row in rows if row[0] == "eve")[-2:] == ["", ""]


def test_times_need_a_zone(a_class):
    with pytest.raises(ValueError, match="no time zone"):
        nbgrader(a_class, handed_in={"ada": datetime(2026, 1, 1)})


@pytest.mark.parametrize(
    "name", ["=cmd|' /C calc'!A0", "+1", "-1", "@x", "\t=1", "a\n=1", '"=1', "\ud800=", "\x1b[0m=1"]
)
def test_hostile_names(verdicts, harmless, name):
    student = Student(name, name, name, name, name, name, name, name)
    hostile = replace(verdicts["value"], exercise=name)
    for write in (nbgrader, canvas):
        for text in (write({name: [hostile]}), write({name: [hostile]}, {name: student})):
            rows = rows_of(text)
            assert len({len(row) for row in rows}) == 1
            for cell in (cell for row in rows for cell in row):
                harmless(cell)
                assert not cell.lstrip().startswith(tuple("=+-@"))


def test_huge_names(verdicts):
    assert len(nbgrader({"x" * 10_000_000: [verdicts["value"]]})) < 5_000
