import os

import pytest

from dtlearn.runtime.record import rank_file
from dtlearn.runtime.record.rank_file import Tampered, read_rank_file


def test_what_is_new_is_read(tmp_path):
    (tmp_path / "calls").write_bytes(b"one\ntwo\n")
    assert read_rank_file(tmp_path / "calls", 4) == b"two\n"
    assert read_rank_file(tmp_path / "calls", 100) == b""  # it was cut
    with pytest.raises(FileNotFoundError):
        read_rank_file(tmp_path / "none")


def test_nothing_but_a_plain_file_of_some_size_is_read(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("/dev/zero")
    (tmp_path / "long").write_bytes(b"x" * 100)
    monkeypatch.setattr(rank_file, "MOST", 99)
    for name in ("fifo", "folder", "link", "long"):
        with pytest.raises(Tampered, match=name):
            read_rank_file(tmp_path / name)
