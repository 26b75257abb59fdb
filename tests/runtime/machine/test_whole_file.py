import os
import threading

import pytest

from dtlearn.runtime.machine.whole_file import write_new, write_whole


def test_a_write_that_fails_leaves_the_old_text(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    write_whole(path, "old")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_whole(path, "new")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_text_and_bytes_are_kept_as_they_are(tmp_path):
    write_whole(tmp_path / "text", "ü \udc80")
    write_whole(tmp_path / "bytes", memoryview(b"\x00\xff"))
    assert (tmp_path / "text").read_bytes() == "ü \\udc80".encode()
    assert (tmp_path / "bytes").read_bytes() == b"\x00\xff"


def test_it_is_for_its_user_alone_unless_it_is_said(tmp_path):
    before = os.umask(0o022)
    try:
        write_whole(tmp_path / "own", "x")
        write_whole(tmp_path / "shared", "x", 0o666)
        write_new(tmp_path / "new", "x")
    finally:
        os.umask(before)
    rights = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert rights == {"own": 0o600, "shared": 0o644, "new": 0o600}


def test_a_name_that_is_taken_stays_as_it_is(tmp_path):
    assert write_new(tmp_path / "a", "first")
    assert not write_new(tmp_path / "a", "second")
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("a", "first")]


@pytest.mark.parametrize("links", [True, False], ids=["hard links", "no hard links"])
def test_only_the_quickest_makes_a_new_file(tmp_path, monkeypatch, links):
    if not links:

        def refuse(*_):
            raise OSError(1, "Operation not permitted")

        monkeypatch.setattr(os, "link", refuse)
    made = []

    def make(name):
        made.append((write_new(tmp_path / "a", name), name))

    threads = [threading.Thread(target=make, args=(str(number),)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (winner,) = [name for first, name in made if first]
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("a", winner)]
