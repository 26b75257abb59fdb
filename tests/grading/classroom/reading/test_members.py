"""What is in a hand-in: folders, zip and tar files; links, FIFOs and paths that lead out are refused."""

import io
import os
import socket
import tarfile
import zipfile
from contextlib import ExitStack

import pytest

from dtlearn.grading.classroom.reading import members as reading
from dtlearn.grading.classroom.reading.members import MAX_DEPTH, open_regular, read_as


@pytest.fixture
def stack():
    with ExitStack() as opened:
        yield opened


def members(path, problems, stack, others=None):
    return reading.members([(path, "")], problems, [] if others is None else others, stack)


def tarred(path, *entries, mode="w"):
    with tarfile.open(path, mode) as archive:
        for name, kind, data in entries:
            info = tarfile.TarInfo(name)
            info.type, info.size = kind, len(data) if kind == tarfile.REGTYPE else 0
            info.linkname = "" if kind == tarfile.REGTYPE else "/etc/hostname"
            archive.addfile(info, io.BytesIO(data))
    return path


def zipped(**files):
    """The bytes of an archive."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, data in files.items():
            archive.writestr(name.replace("__", "."), data)
    return made.getvalue()


@pytest.mark.parametrize("suffix", ["tar", "tar.gz", "tgz", "tar.bz2", "tar.xz"])
def test_tar_files_are_read(tmp_path, stack, suffix):
    mode = {"tgz": "w:gz", "tar": "w"}.get(suffix, f"w:{suffix[4:]}")
    path = tarred(tmp_path / f"ann.{suffix}", ("./ch01_ranks/mean.py", tarfile.REGTYPE, b"x = 1\n"), mode=mode)
    problems = []
    found = members(path, problems, stack)
    assert [found[name]().read() for name in found] == [b"x = 1\n"] and not problems


def test_what_a_tar_file_may_not_hold_is_refused(tmp_path, stack):
    kinds = [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE]
    entries = [(f"{k}/mean.py", kind, b"") for k, kind in enumerate(kinds)]
    entries += [(name, tarfile.REGTYPE, b"x") for name in ("../mean.py", "/mean.py", "a/../../mean.py")]
    problems = []
    assert not members(tarred(tmp_path / "a.tar", *entries), problems, stack)
    words = ["a link", "a link", "no regular file", "no regular file", *["leads out"] * 3]
    assert len(problems) == len(words) and all(word in text for word, text in zip(words, problems, strict=True))


def test_a_folder_with_links_loops_fifos_and_sockets(tmp_path, stack, monkeypatch):
    (tmp_path / "in" / "real").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "in")
    os.mkfifo("mean.py")
    os.symlink("x.py", "x.py")
    os.symlink("/", "everything")
    with socket.socket(socket.AF_UNIX) as one:
        one.bind("s.py")
    (tmp_path / "in" / "real" / "mean.py").write_text("x")
    problems = []
    assert list(members(tmp_path / "in", problems, stack)) == ["real/mean.py"]
    assert sorted(problems) == [
        "everything: a link; refused",
        "mean.py: no regular file; refused",
        "s.py: no regular file; refused",
        "x.py: a link; refused",
    ]
    for name in ("mean.py", "x.py", "s.py", "real"):
        with pytest.raises(OSError):
            open_regular(name)


def test_what_is_not_theirs_is_not_looked_at(tmp_path, stack):
    for name in (".venv/lib/mean.py", "node_modules/mean.py", "__MACOSX/._mean.py", ".ipynb_checkpoints/a.ipynb"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("x")
    problems = []
    assert not members(tmp_path, problems, stack) and not problems


def test_deep_and_large_folders_end(tmp_path, stack):
    place = os.open(tmp_path, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d", dir_fd=place)
        inner = os.open("d", os.O_RDONLY, dir_fd=place)
        os.close(place)
        place = inner
    os.close(place)
    problems = []
    assert not members(tmp_path, problems, stack)
    assert f"more than {MAX_DEPTH} folders" in problems[0]
    name = "d"  # pytest's own way to remove it would recurse: from the outside in, each level beside the rest
    while (tmp_path / name / "d").is_dir():
        (tmp_path / name / "d").rename(tmp_path / "next")
        (tmp_path / name).rmdir()
        (tmp_path / "next").rename(tmp_path / name)


def test_too_many_members(tmp_path, stack, monkeypatch):
    monkeypatch.setattr("dtlearn.grading.classroom.reading.members.MAX_MEMBERS", 20)
    path = tarred(tmp_path / "a.tar", *((f"{k}.txt", tarfile.REGTYPE, b"") for k in range(21)))
    with pytest.raises(ValueError, match="more than 20 files"):
        members(path, [], stack)


def test_an_archive_inside_is_opened_and_none_inside_that(tmp_path, stack):
    inner = zipped(mean__py=b"x = 1\n", more__zip=zipped(total__py=b""))
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "homework.zip").write_bytes(inner)
    (tmp_path / "in" / "bad.tgz").write_bytes(b"no tar")
    (tmp_path / "all.zip").write_bytes(zipped(homework__zip=inner))
    tarred(tmp_path / "all.tar.gz", ("homework.zip", tarfile.REGTYPE, inner), mode="w:gz")
    for name in ("in", "all.zip", "all.tar.gz"):
        problems, others = [], []
        found = members(tmp_path / name, problems, stack, others)
        assert {name: found[name]().read() for name in found} == {"homework.zip/mean.py": b"x = 1\n"}
        assert others == ["homework.zip/more.zip"]
        assert [text.partition(": ")[0] for text in problems] == ["bad.tgz"] * (name == "in")


def test_archives_inside_have_limits(tmp_path, stack, monkeypatch):
    monkeypatch.setattr(reading, "MAX_ARCHIVE", 4096)
    monkeypatch.setattr(reading, "MAX_ARCHIVES", 2)
    many = {f"{k}__zip": zipped(a__py=b"#" * (5000 * (k == 0))) for k in range(3)}
    (tmp_path / "all.zip").write_bytes(zipped(**many))
    problems, others = [], []
    assert list(members(tmp_path / "all.zip", problems, stack, others)) == ["1.zip/a.py"]
    assert problems == ["0.zip: cannot be opened: more than 0 MiB"] and others == ["2.zip"]


def test_names_as_windows_browsers_and_systems_write_them(tmp_path, stack):
    (tmp_path / "a.zip").write_bytes(
        zipped(**{"hw\\ch01_ranks\\Mean__PY": b"", "hw\\": b"", "n__ipynb__txt": b"", "Thumbs__db": b"", "x__PDF": b""})
    )
    problems, others = [], []
    found = members(tmp_path / "a.zip", problems, stack, others)
    assert list(found) == ["hw/ch01_ranks/Mean.PY", "n.ipynb.txt"] and not problems
    assert [read_as(name) for name in found] == ["hw/ch01_ranks/mean.py", "n.ipynb"]
    assert others == ["x.PDF"]


def test_a_password_is_named(tmp_path, stack):
    data = bytearray(zipped(mean__py=b"x"))
    for at in (data.index(b"PK\3\4") + 6, data.index(b"PK\1\2") + 8):
        data[at] |= 1  # of the flags: encrypted
    (tmp_path / "a.zip").write_bytes(data)
    found = members(tmp_path / "a.zip", [], stack)
    with pytest.raises(ValueError, match="it has a password; ask for an archive without one"):
        found["mean.py"]()
