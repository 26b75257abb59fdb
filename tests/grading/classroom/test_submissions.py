"""Reading what a class handed in, hostile archives included."""

import os
import stat
import zipfile
from datetime import UTC, datetime

import pytest

from dtlearn.grading.classroom.reading.members import MAX_MEMBERS
from dtlearn.grading.classroom.submissions import find_hand_ins, read_submission, read_submissions, safe_name


def find_submissions(folder, course, exercises, strays=None):
    return read_submissions(find_hand_ins(folder, course, exercises, strays), course, exercises)


def zipped(path, files: dict[str, str | bytes]):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


@pytest.mark.parametrize(
    "name",
    [
        "ch01_ranks/mean.py",
        "exercises/ch01_ranks/mean.py",
        "mean.py",
        "ch01.mean.py",
        "ch01_mean.py",
        "deep/er/mean.py",
    ],
)
def test_an_answer_is_found_under_any_usual_name(tmp_path, course, exercise, name):
    folder = tmp_path / "in" / "ann"
    (folder / name).parent.mkdir(parents=True)
    (folder / name).write_text("x = 1\n")
    zipped(tmp_path / "in" / "bob.zip", {name: "x = 2\r\n"})
    ann, bob = find_submissions(tmp_path / "in", course, [exercise])
    assert (ann.student, ann.answers, ann.files) == ("ann", {"ch01.mean": "x = 1\n"}, {"ch01.mean": name})
    assert (bob.student, bob.answers) == ("bob", {"ch01.mean": "x = 2\n"})


def test_the_shallowest_answer_counts_and_the_other_is_named(tmp_path, course, exercise):
    path = zipped(tmp_path / "ann.zip", {"mean.py": "top\n", "old/mean.py": "old\n"})
    found = read_submission(path, course, [exercise])
    assert found.answers == {"ch01.mean": "top\n"}
    assert "second answer" in found.problems[0]


@pytest.mark.parametrize("name", ["../mean.py", "/mean.py", "a/../../mean.py", "..\\mean.py"])
def test_paths_that_lead_out_are_refused(tmp_path, course, exercise, name):
    found = read_submission(zipped(tmp_path / "ann.zip", {name: "x"}), course, [exercise])
    assert not found.answers
    assert "leads out" in found.problems[0]


def test_links_are_refused(tmp_path, course, exercise):
    info = zipfile.ZipInfo("mean.py")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "ann.zip", "w") as archive:
        archive.writestr(info, "/etc/hostname")
    secret = tmp_path / "secret.py"
    secret.write_text("secret")
    (tmp_path / "bob").mkdir()
    (tmp_path / "bob" / "mean.py").symlink_to(secret)
    for path in (tmp_path / "ann.zip", tmp_path / "bob"):
        found = read_submission(path, course, [exercise])
        assert not found.answers
        assert "link" in found.problems[0]


def test_a_bomb_is_read_up_to_the_limit(tmp_path, course, exercise):
    path = zipped(tmp_path / "ann.zip", {"mean.py": b"#" * (200 << 20)})
    assert path.stat().st_size < 1 << 20
    found = read_submission(path, course, [exercise])
    assert not found.answers
    assert "more than 1 MiB" in found.problems[0]


def test_what_is_no_archive_or_no_text_is_a_problem_of_that_submission(tmp_path, course, exercise):
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "ann.zip").write_bytes(b"no zip")
    zipped(folder / "bob.zip", {"mean.py": b"\xff\xfe\x00"})
    zipped(folder / "eve.zip", {f"{i}.py": "" for i in range(MAX_MEMBERS + 1)})
    ann, bob, eve = find_submissions(folder, course, [exercise])
    assert "cannot be read" in ann.problems[0]
    assert "no text in UTF-8" in bob.problems[0]
    assert "more than 20,000 files" in eve.problems[0]
    for one in (ann, bob, eve):  # it is said in the row, and is no "nothing was handed in"
        verdict = one.without_answer(exercise)
        assert (verdict.state, verdict.code, verdict.score) == ("failed", "DTL-UNREADABLE", 0.0)
        assert verdict.first_fault.headline in one.problems[0]


def test_an_empty_folder_and_a_name_used_twice_are_errors(tmp_path, course, exercise):
    (tmp_path / "in").mkdir()
    with pytest.raises(ValueError, match="holds no submission"):
        find_submissions(tmp_path / "in", course, [exercise])
    with pytest.raises(ValueError, match="cannot be read"):
        find_submissions(tmp_path / "nowhere", course, [exercise])


def test_two_hand_ins_of_one_name_are_two_submissions_of_one_student(tmp_path, course, exercise):
    folder = tmp_path / "in"
    (folder / "ann").mkdir(parents=True)
    zipped(folder / "ann.zip", {"mean.py": "x"})
    zipped(folder / "ann@2026-11-20T23:59+01:00.zip", {"mean.py": "y"})
    (folder / "bob@example.org").mkdir()
    os.utime(folder / "ann", (0, 0))
    found = {s.entry: (s.student, s.handed_in) for s in find_submissions(folder, course, [exercise])}
    assert found["ann"] == ("ann", datetime(1970, 1, 1, tzinfo=UTC))
    assert found["ann@2026-11-20T23:59+01:00.zip"] == ("ann", datetime(2026, 11, 20, 22, 59, tzinfo=UTC))
    assert found["ann.zip"][0] == "ann" and found["bob@example.org"][0] == "bob@example.org"


def test_everything_in_the_folder_is_accounted_for(tmp_path, course, exercise):
    folder = tmp_path / "in"
    folder.mkdir()
    for name in (
        "alice_ch01.mean.py",
        "homework.py",
        "loose.ipynb",
        "bob.rar",
        "eve.7z",
        "README.txt",
        ".hidden",
        "dan.zip.part",
    ):
        (folder / name).write_text("x")
    os.symlink("loop", folder / "loop")
    os.symlink("/", folder / "root")
    os.mkfifo(folder / "fifo")
    (folder / "x\n\x1b[31m\u202ey").mkdir()
    (folder / os.fsdecode(b"\xff\xfe")).mkdir()
    strays = []
    found = {s.entry: s for s in find_submissions(folder, course, [exercise], strays)}
    left = {"alice_ch01.mean.py", "homework.py", "loose.ipynb", "README.txt", ".hidden"}
    assert set(found) == {p.name for p in folder.iterdir()} - left
    for name in ("bob.rar", "eve.7z", "dan.zip.part"):
        assert "no folder, .zip or .tar" in found[name].refused["ch01.mean"]
    assert found["bob.rar"].student == "bob"
    assert "a link" in found["loop"].problems[0] and "a link" in found["root"].problems[0]
    assert "no folder or file" in found["fifo"].problems[0]
    assert [text.startswith("(") for text in strays] == [True, True, False, False, False]
    assert "move it to alice/ch01.mean.py, in a folder with the name of its student" in strays[2]
    assert "move it to STUDENT/EXERCISE.py, in a folder" in strays[3]
    assert "move it to STUDENT/loose.ipynb, in a folder" in strays[4]


def test_names_of_students_are_safe_file_names():
    assert safe_name("ann.lee-2") == "ann.lee-2"
    names = [safe_name(n) for n in ("../../etc", "a/b", "a_b", "Zoë", "x" * 500, "..", "=cmd|x")]
    assert len(set(names)) == len(names)
    assert all("/" not in n and n.strip(".") and len(n) < 100 for n in names)


def test_no_name_is_that_of_a_file_of_ours_or_of_another_student():
    ours = ["summary.html", "summary.txt", "lti.jsonl", "canvas.csv", "similarity.csv", "ch01.mean.json", "junit.xml"]
    assert not {safe_name(n) for n in ours} & set(ours)
    names = ["m b", safe_name("m b"), safe_name(safe_name("m b")), "Ann", "ann", "ANN", "\udcff", "\ud800", "-rf", "rf"]
    assert len({safe_name(n).lower() for n in names}) == len(names)
