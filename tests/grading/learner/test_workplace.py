"""The learner's own copies: made, followed, kept; what the course tracks is never written."""

import json
import os
import stat

import nbformat
import pytest

from dtlearn.grading.learner.exercise_files import files_of
from dtlearn.grading.learner.stubs import to_cell
from dtlearn.grading.learner.workplace import make_answers, own_copy, own_notebook, renew, sentence, update
from dtlearn.runtime.errors import DtlearnError
from tests.grading.small_course import ID, RIGHT, STUB, small_course


def notebook(*cells):
    """A built chapter: text, code with an output, an exercise."""
    made = nbformat.v4.new_notebook()
    made.cells = [nbformat.v4.new_markdown_cell("# Small"), *map(nbformat.v4.new_code_cell, cells)]
    for cell in made.cells[1:]:
        cell.outputs = [nbformat.v4.new_output("stream", text="the answer\n")]
    return made


FIRST = ("1 + 1", f"%%exercise {ID}\n{STUB}")
SECOND = ("1 + 2", f"%%exercise {ID}\n{STUB}")


@pytest.fixture
def course(tmp_path):
    course = small_course(tmp_path / "kurs ü")
    (course.root / "notebooks").mkdir()
    publish(course, FIRST)
    return course


def publish(course, cells):
    """The course has this version of its chapter now, as after a `git pull`."""
    nbformat.write(notebook(*cells), course.root / course.chapters[0].notebook)


def read(course):
    return nbformat.read(own_notebook(course, course.chapters[0]), as_version=4)


def change(course, text="my own try"):
    """The learner writes into the copy's first code cell, and runs it."""
    mine = read(course)
    mine.cells[1].source = text
    mine.cells[1].outputs = [nbformat.v4.new_output("stream", text="3\n")]
    nbformat.write(mine, own_notebook(course, course.chapters[0]))


def tracked(course):
    folders = ("notebooks", "exercises", "solutions")
    return {p: p.read_bytes() for f in folders for p in (course.root / f).rglob("*") if p.is_file()}


def test_a_copy_is_made_without_outputs_and_the_course_s_own_stays(course):
    (chapter,), before = course.chapters, tracked(course)
    assert own_copy(course, chapter) == "made"
    mine = read(course)
    nbformat.validate(mine)
    assert [c.source for c in mine.cells[1:]] == [*FIRST] and not any(c.outputs for c in mine.cells[1:])
    answer = files_of(course, course.exercise(ID)).answer
    assert answer.read_text() == STUB and stat.S_IMODE(answer.stat().st_mode) & 0o600 == 0o600
    assert tracked(course) == before
    assert "work/ch01_small.ipynb" in sentence("made", course, chapter)
    assert own_copy(course, chapter) == "current"


def test_work_in_the_course_s_own_files_is_taken_over(course):
    files_of(course, course.exercise(ID)).stub.write_text(RIGHT)
    (course.root / "notebooks/.dtlearn").mkdir()
    (course.root / "notebooks/.dtlearn/predictions.json").write_text("{}")
    own_copy(course, course.chapters[0])
    assert files_of(course, course.exercise(ID)).answer.read_text() == RIGHT
    assert (course.root / "work/.dtlearn/predictions.json").read_text() == "{}"


def test_answers_that_are_there_are_left_as_they_are(course):
    answer = files_of(course, course.exercise(ID)).answer
    answer.parent.mkdir(parents=True)
    answer.write_text(RIGHT)
    make_answers(course, course.chapters[0].exercises)
    assert answer.read_text() == RIGHT


def test_an_unchanged_copy_follows_the_course_also_if_it_was_run(course):
    (chapter,) = course.chapters
    own_copy(course, chapter)
    change(course, "1 + 1")  # run, and not changed
    publish(course, SECOND)
    assert own_copy(course, chapter) == "renewed"
    assert read(course).cells[1].source == "1 + 2"
    assert not (course.root / "work/kept").exists()


def test_a_changed_copy_stays_until_its_owner_asks_and_is_kept_then(course):
    (chapter,) = course.chapters
    own_copy(course, chapter)
    change(course)
    files_of(course, course.exercise(ID)).answer.write_text(RIGHT)
    assert own_copy(course, chapter) == "current"
    publish(course, SECOND)
    assert own_copy(course, chapter) == "older"
    assert read(course).cells[1].source == "my own try"
    assert "dtlearn update ch01" in sentence("older", course, chapter)
    said = update(course, chapter)
    assert "work/kept/ch01_small-001.ipynb" in said
    mine = read(course)
    assert mine.cells[1].source == "1 + 2"
    assert mine.cells[2].source == to_cell(RIGHT, ID) and "dist.all_reduce(total)" in mine.cells[2].source
    kept = nbformat.read(course.root / "work/kept/ch01_small-001.ipynb", as_version=4)
    assert kept.cells[1].source == "my own try" and kept.cells[1].outputs
    assert own_copy(course, chapter) == "current"
    assert "latest version" in update(course, chapter)


def test_begun_anew_the_cells_are_stubs_and_nothing_is_lost(course):
    (chapter,) = course.chapters
    own_copy(course, chapter)
    answer = files_of(course, course.exercise(ID)).answer
    answer.write_text(RIGHT)
    for number in (1, 2):
        change(course, f"try {number}")
        assert f"work/kept/ch01_small-00{number}.ipynb" in renew(course, chapter, with_answers=False)
    assert [c.source for c in read(course).cells[1:]] == [*FIRST]
    assert answer.read_text() == RIGHT
    for number in (1, 2):
        assert f"try {number}" in (course.root / f"work/kept/ch01_small-00{number}.ipynb").read_text()


@pytest.mark.parametrize("damage", ["{", "[]", '{"cells": 3, "metadata": {}}', '{"cells": []}', "\ud800"])
def test_a_damaged_copy_is_left_and_kept_when_it_is_replaced(course, damage):
    (chapter,), path = course.chapters, own_notebook(course, course.chapters[0])
    own_copy(course, chapter)
    path.write_bytes(damage.encode("utf-8", "surrogatepass"))
    assert own_copy(course, chapter) == "broken"
    assert path.read_bytes() == damage.encode("utf-8", "surrogatepass")
    assert "damaged" in sentence("broken", course, chapter) and "dtlearn lab --fresh ch01" in update(course, chapter)
    renew(course, chapter, with_answers=True)
    assert (course.root / "work/kept/ch01_small-001.ipynb").read_bytes() == damage.encode("utf-8", "surrogatepass")
    assert own_copy(course, chapter) == "current"


def test_a_copy_and_an_answer_that_were_deleted_are_made_again(course):
    (chapter,) = course.chapters
    own_copy(course, chapter)
    own_notebook(course, chapter).unlink()
    files_of(course, course.exercise(ID)).answer.unlink()
    assert own_copy(course, chapter) == "made"
    assert files_of(course, course.exercise(ID)).answer.read_text() == STUB


def test_a_place_that_cannot_be_written_is_told_with_what_to_do(course):
    (course.root / "work").write_text("in the way")
    for attempt in (own_copy, update, lambda *these: renew(*these, with_answers=True)):
        with pytest.raises(DtlearnError, match=r"your copies belong in .*work.*clone the course into a folder of your"):
            attempt(course, course.chapters[0])


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_is_told(course):
    course.root.chmod(0o500)
    try:
        with pytest.raises(DtlearnError, match="Permission denied"):
            own_copy(course, course.chapters[0])
    finally:
        course.root.chmod(0o700)


def test_a_copy_says_what_it_was_made_from(course):
    own_copy(course, course.chapters[0])
    metadata = json.loads(own_notebook(course, course.chapters[0]).read_text())["metadata"]
    assert len(metadata["dtlearn_copy_of"]) == 16
