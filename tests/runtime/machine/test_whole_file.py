import pytest

from dtlearn.runtime.machine.whole_file import write_whole


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
