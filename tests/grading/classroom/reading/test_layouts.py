"""What is whose in downloads of Moodle, Canvas and Gradescope, and in folders that a person made."""

import os

import pytest

from dtlearn.grading.classroom.reading.layouts import hand_ins, student_of_entry


def found_in(folder):
    strays = []
    with os.scandir(folder) as entries:
        by_name = sorted(entries, key=lambda entry: entry.name)
    found = hand_ins(by_name, strays, ["ch01.mean.py", "mean.py"])
    return {one.student: [(path.name, name) for path, name in one.parts] for one in found}, strays


def test_moodle(tmp_path):
    for name in ("Ada L_1_assignsubmission_file_", "Ada L_1_assignsubmission_onlinetext_"):
        (tmp_path / name).mkdir()
    (tmp_path / "Bo_2_assignsubmission_file_homework.zip").write_text("")
    assert found_in(tmp_path) == (
        {
            "Ada L_1": [
                ("Ada L_1_assignsubmission_file_", ""),
                ("Ada L_1_assignsubmission_onlinetext_", "onlinetext"),
            ],
            "Bo_2": [("Bo_2_assignsubmission_file_homework.zip", "homework.zip")],
        },
        [],
    )


def test_canvas(tmp_path):
    files = ["a_LATE_4501_99002_mean.py", "a_4501_99001_notes.txt", "zoë_77_1_my_own_homework-1.zip"]
    for name in (*files, "a_12_34_folder"):
        (tmp_path / name).mkdir() if name.endswith("folder") else (tmp_path / name).write_text("")
    found, strays = found_in(tmp_path)
    assert found == {
        "a_4501": [("a_4501_99001_notes.txt", "notes.txt"), ("a_LATE_4501_99002_mean.py", "mean.py")],
        "a_12_34_folder": [("a_12_34_folder", "")],  # that system makes none
        "zoë_77": [("zoë_77_1_my_own_homework-1.zip", "my_own_homework-1.zip")],
    }
    assert not strays


def test_gradescope_and_what_systems_leave(tmp_path):
    for name in ("submission_31", "__MACOSX", "submission_32"):
        (tmp_path / name).mkdir()
    for name in ("submission_metadata.yml", "Thumbs.db", "desktop.ini", ".DS_Store"):
        (tmp_path / name).write_text("")
    found, strays = found_in(tmp_path)
    assert set(found) == {"submission_31", "submission_32"}
    assert strays == [
        "(.DS_Store: hidden; left out)",
        "(Thumbs.db: of a system; left out)",
        "(__MACOSX: of a system; left out)",
        "(desktop.ini: of a system; left out)",
        "(submission_metadata.yml: no hand-in; left out)",
    ]


@pytest.mark.parametrize("name", ["zoe_mean.py.txt", "zoe-ch01.mean.PY", "zoe.ipynb.json"])
def test_a_loose_answer_is_no_file_of_the_instructors(tmp_path, name):
    (tmp_path / name).write_text("")
    found, strays = found_in(tmp_path)
    assert not found and "a loose file, not graded" in strays[0]


def test_names_of_students():
    names = ["Ada L_1_assignsubmission_file_", "ada_LATE_4501_99_mean.py", "submission_31", "ann", "a_b_c"]
    assert [*map(student_of_entry, names)] == ["Ada L_1", "ada_4501", "submission_31", "ann", "a_b_c"]
