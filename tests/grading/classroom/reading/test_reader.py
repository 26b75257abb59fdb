"""Hand-ins that are damaged, endless or hostile cost themselves only; notebooks are read."""

import io
import json
import os
import tarfile
import zipfile
import zlib
from contextlib import ExitStack

import pytest

from dtlearn.grading.classroom.reading import reader

WANTED = {"ch01_ranks/mean.py": "ch01.mean", "mean.py": "ch01.mean", "total.py": "ch01.total"}


def read(path, wanted):
    with ExitStack() as stack:
        return reader.read([(path, "")], wanted, stack)


def read_in_process(path, wanted):
    return reader.read_in_process([(path, "")], wanted)


def notebook(*cells):
    made = [{"cell_type": "code", "source": text.splitlines(keepends=True)} for text in cells]
    return json.dumps({"cells": made, "nbformat": 4})


def folder_of(path, files):
    for name, text in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_cells_of_a_notebook_are_answers(tmp_path):
    cells = ("import torch", "%%exercise ch01.mean\ndef mean(x):\n    return x\n", "%%exercise ch09.other\nx")
    found = read_in_process(folder_of(tmp_path / "ann", {"work/ch01.ipynb": notebook(*cells)}), WANTED)
    first, _, rest = found["answers"]["ch01.mean"].partition("\n")
    assert first.startswith("# ch01.mean") and rest == "def mean(x):\n    return x\n"
    assert found["files"] == {"ch01.mean": "work/ch01.ipynb"}
    assert not found["problems"] and len(found["prints"]["ch01.mean"]) >= 1


def test_a_file_comes_before_a_cell_and_another_text_is_named(tmp_path):
    files = {"work/ch01_ranks/mean.py": "x = 1\n", "work/ch01.ipynb": notebook("%%exercise ch01.mean\nx = 2\n")}
    found = read(folder_of(tmp_path / "ann", files), WANTED)
    assert found["answers"] == {"ch01.mean": "x = 1\n"}
    assert "second answer to ch01.mean" in found["problems"][0]
    same = {"work/mean.py": "# ch01.mean: edit this file, then run `dtlearn grade ch01.mean`.\nx\n"}
    found = read(folder_of(tmp_path / "bob", {**same, "work/n.ipynb": notebook("%%exercise ch01.mean\nx\n")}), WANTED)
    assert not found["problems"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{\n "cells": [,]}', "damaged notebook, line 2 column 12"),
        ('{"cells": 3}', "no notebook"),
        ("[]", "no notebook"),
        ('{"cells": [{"cell_type": "code"}]}', "no notebook"),
        ("[" * 100_000, "no notebook"),
        (b"\xff\xfe", "no text in UTF-8"),
        ("", "an empty notebook"),
        ('{"nbformat": 3, "worksheets": []}', "format 3; open it in Jupyter and save it again"),
    ],
)
def test_a_corrupted_notebook_says_what_is_wrong_and_where(tmp_path, text, words):
    found = read_in_process(folder_of(tmp_path / "ann", {"a.ipynb": text}), WANTED)
    assert found["problems"][0].startswith("a.ipynb: ") and words in found["problems"][0]
    assert set(found["refused"]) == {"ch01.mean", "ch01.total"}


def damaged(path, method):
    """A zip file whose one member's compressed bytes are nonsense."""
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("mean.py", os.urandom(2000).hex())
    data = bytearray(path.read_bytes())
    data[60:400] = b"\xff" * 340
    path.write_bytes(data)


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_damaged_streams(tmp_path, method):
    damaged(tmp_path / "a.zip", method)
    found = read_in_process(tmp_path / "a.zip", WANTED)
    assert not found["answers"] and "mean.py: cannot be read" in found["refused"]["ch01.mean"]


def test_damaged_tar_files(tmp_path):
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
        info = tarfile.TarInfo("mean.py")
        info.size = 100_000
        archive.addfile(info, io.BytesIO(os.urandom(100_000)))
    whole = (tmp_path / "a.tar.gz").read_bytes()
    for data in (whole[:2000], b"", b"no tar", whole[:40] + b"\0" * 100):
        (tmp_path / "a.tar.gz").write_bytes(data)
        found = read_in_process(tmp_path / "a.tar.gz", WANTED)
        assert not found["answers"] and found["problems"]


@pytest.mark.slow
def test_what_takes_too_much_memory_or_time_is_that_hand_ins_fault(tmp_path, monkeypatch):
    bomb = zlib.compress(b"\0" * (64 << 20), wbits=31) * 160  # gzip allows parts: 10 GiB of zeros
    head = tarfile.TarInfo("big.bin")
    head.size = 10 << 30
    (tmp_path / "a.tgz").write_bytes(zlib.compress(head.tobuf(), wbits=31) + bomb)
    monkeypatch.setattr(
        reader,
        "_BOOT",
        reader._BOOT.replace("; main()", "; reader.PROCESSOR = 1; main()").replace(
            "from dtlearn", "from dtlearn.grading.classroom.reading import reader; from dtlearn", 1
        ),
    )
    assert "processor time" in read_in_process(tmp_path / "a.tgz", WANTED)["problems"][0]
    small = reader._BOOT.replace("PROCESSOR = 1", "MEMORY = 96 << 20")
    monkeypatch.setattr(reader, "_BOOT", small)
    path = folder_of(tmp_path / "ann", {"a.ipynb": "[" + "[]," * 3_000_000 + "0]"})
    assert "GiB of memory" in read_in_process(path, WANTED)["problems"][0]


def test_an_answer_beyond_the_limit_and_one_in_utf_16_are_refused(tmp_path):
    files = {"mean.py": "#" * (reader.MAX_FILE + 1), "total.py": "x = 1".encode("utf-16")}
    found = read(folder_of(tmp_path / "ann", files), WANTED)
    assert "more than 1 MiB" in found["refused"]["ch01.mean"]
    assert "no text in UTF-8" in found["refused"]["ch01.total"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda path: path.unlink(), "cannot be read"),
        (lambda path: (path.unlink(), os.mkfifo(path)), "no regular file"),
        (lambda path: (path.unlink(), path.symlink_to("/etc/passwd")), "cannot be read"),
        (lambda path: (path.unlink(), path.mkdir()), "cannot be read: "),
        (lambda path: os.truncate(path, 1 << 40), "more than 1 MiB"),
    ],
)
def test_a_file_that_becomes_another_after_it_was_found_is_refused(tmp_path, monkeypatch, change, words):
    path = folder_of(tmp_path / "ann", {"mean.py": "x = 1\n"}) / "mean.py"
    real = reader.members

    def found_then_changed(*args):
        found = real(*args)
        change(path)
        return found

    monkeypatch.setattr(reader, "members", found_then_changed)
    assert words in read(tmp_path / "ann", WANTED)["refused"]["ch01.mean"]


def test_problems_are_few_and_cannot_steer_a_terminal(tmp_path, harmless):
    found = read(folder_of(tmp_path / "ann", {f"{k}\n\x1b[31m\u202e/mean.py": "x" * k for k in range(40)}), WANTED)
    assert len(found["problems"]) == 21 and found["problems"][-1] == "and 19 more"
    for problem in found["problems"]:
        harmless(problem)
        assert "\n" not in problem
    found = read(folder_of(tmp_path / "bob", {"homework.py": "x"}), WANTED)
    assert "no file with the name of an exercise, but homework.py" in found["problems"][0]


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"homework.pdf": "%PDF"}, "no Python file and no notebook, but homework.pdf"),
        ({"a.7z": "7z", "b.docx": "x"}, "no Python file and no notebook, but a.7z, b.docx"),
        ({"homework.py": "x", "ch01.html": "x"}, "no file with the name of an exercise, but ch01.html, homework.py"),
    ],
)
def test_what_was_handed_in_and_not_read_is_no_nothing(tmp_path, files, words):
    found = read_in_process(folder_of(tmp_path / "ann", files), WANTED)
    assert found["unread"] and words in found["problems"][0]
    assert found["refused"] == dict.fromkeys(["ch01.mean", "ch01.total"], found["problems"][0])


def test_beside_answers_only_what_may_hold_a_missing_one_is_named(tmp_path):
    files = {"mean.py": "x", "data.csv": "1", "total.docx": "x", "notes.html": "x"}
    found = read(folder_of(tmp_path / "ann", files), WANTED)
    assert found["problems"] == ["in this submission nobody looked into notes.html, total.docx"]
    assert found["unread"] and not found["refused"] and set(found["answers"]) == {"ch01.mean"}
    found = read(folder_of(tmp_path / "bob", {**files, "total.py": "x"}), WANTED)
    assert not found["unread"] and not found["problems"]
    (tmp_path / "eve" / "__MACOSX").mkdir(parents=True)
    found = read(folder_of(tmp_path / "eve", {"Thumbs.db": "x"}), WANTED)
    assert not found["unread"] and found["problems"] == ["the submission is empty"]


@pytest.mark.parametrize(
    "name",
    ["Mean.PY", "mean.py.txt", "mean (1).py", "mean-2.py", "MEAN(3).py.txt", "Ch01_Ranks/mean-1.py", "a.zip"],
)
def test_names_that_browsers_and_canvas_make_are_read(tmp_path, name):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("hw\\mean.py", "x = 1\n")
    files = {name: data.getvalue() if name == "a.zip" else "x = 1\n"}
    found = read(folder_of(tmp_path / "ann", files), WANTED)
    assert found["answers"] == {"ch01.mean": "x = 1\n"} and not found["problems"]


def test_the_last_of_several_cells_counts_and_the_note_says_which(tmp_path):
    cells = ["import torch", *(f"%%exercise ch01.mean\nx = {k}\n" for k in (1, 2, 3))]
    found = read(folder_of(tmp_path / "ann", {"a.ipynb": notebook(*cells)}), WANTED)
    assert found["answers"]["ch01.mean"].endswith("\nx = 3\n") and not found["unread"]
    assert found["problems"] == ["a.ipynb: cell 4 is graded, the last one for ch01.mean; cells 2 and 3 answer it too"]
    files = {"a.ipynb": notebook(*cells[:2]), "b.ipynb": notebook(cells[0], "", cells[2])}
    found = read(folder_of(tmp_path / "bob", files), WANTED)
    assert found["problems"] == ["b.ipynb, cell 3: a second answer to ch01.mean; a.ipynb is graded"]


@pytest.mark.parametrize(
    "files",
    [
        {f"{who}_{k}_assignsubmission_file_/mean.py": "x" for k, who in enumerate(("Ada", "Bo"))},
        {"submission_1/mean.py": "x", "submission_2/mean.py": "x", "submission_metadata.yml": "x"},
    ],
    ids=["Moodle", "Gradescope"],
)
def test_a_download_that_was_not_unpacked_is_no_hand_in(tmp_path, files):
    folder_of(tmp_path / "download", files)
    with zipfile.ZipFile(tmp_path / "download.zip", "w") as archive:
        for name, text in files.items():
            archive.writestr(f"all/{name}", text)
    for name in ("download", "download.zip"):
        found = read_in_process(tmp_path / name, WANTED)
        assert found["unread"] and not found["answers"]
        assert "it is what a whole class handed in; unpack it, and give that folder" in found["problems"][0]
    mine = folder_of(tmp_path / "ann", {"Ada_0_assignsubmission_file_/mean.py": "x"})
    assert read_in_process(mine, WANTED)["answers"]
