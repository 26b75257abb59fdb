"""Reading what a class handed in, hostile archives included."""

import stat
import zipfile

import pytest

from dtlearn.grading.classroom import submissions
from dtlearn.grading.classroom.submissions import find_submissions, read_submission, safe_name


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


def test_what_is_no_archive_or_no_text_is_a_problem_of_that_submission(tmp_path, course, exercise, monkeypatch):
    (tmp_path / "ann.zip").write_bytes(b"no zip")
    zipped(tmp_path / "bob.zip", {"mean.py": b"\xff\xfe\x00"})
    zipped(tmp_path / "eve.zip", {f"{i}.py": "x" for i in range(30)})
    monkeypatch.setattr(submissions, "MAX_MEMBERS", 20)
    ann, bob, eve = find_submissions(tmp_path, course, [exercise])
    assert "cannot be read" in ann.problems[0]
    assert "no UTF-8" in bob.problems[0]
    assert "more than 20 files" in eve.problems[0]


def test_an_empty_folder_and_a_name_used_twice_are_errors(tmp_path, course, exercise):
    (tmp_path / "in").mkdir()
    with pytest.raises(ValueError, match="holds no submission"):
        find_submissions(tmp_path / "in", course, [exercise])
    with pytest.raises(ValueError, match="cannot be read"):
        find_submissions(tmp_path / "nowhere", course, [exercise])
    (tmp_path / "in" / "ann").mkdir()
    zipped(tmp_path / "in" / "ann.zip", {"mean.py": "x"})
    with pytest.raises(ValueError, match="same name: ann"):
        find_submissions(tmp_path / "in", course, [exercise])


def test_names_of_students_are_safe_file_names():
    assert safe_name("ann.lee-2") == "ann.lee-2"
    names = [safe_name(n) for n in ("../../etc", "a/b", "a_b", "Zoë", "x" * 500, "..", "=cmd|x")]
    assert len(set(names)) == len(names)
    assert all("/" not in n and n.strip(".") and len(n) < 100 for n in names)
