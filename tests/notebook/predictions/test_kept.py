import json

import pytest

from dtlearn.notebook.predictions.kept import STORE, keep, kept


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_answers_are_kept_side_by_side():
    assert keep("k1", "Wie viele Bytes? 数据", 4.0) == ""
    assert keep("k2", "Which?", "B") == ""
    assert (kept("k1"), kept("k2"), kept("k3")) == (4.0, "B", None)
    assert json.loads(STORE.read_text(encoding="utf-8"))["k1"]["question"] == "Wie viele Bytes? 数据"
    assert [p.name for p in STORE.parent.iterdir()] == [STORE.name], "no partial file is left"


@pytest.mark.parametrize("text", ["{", "[1]", '"text"'])
def test_a_damaged_file_is_said_and_not_overwritten(text):
    STORE.parent.mkdir()
    STORE.write_text(text)
    assert kept("k") is None
    assert "damaged" in keep("k", "?", 1.0)
    assert STORE.read_text() == text


def test_a_folder_that_cannot_be_written_is_said(folder):
    (folder / ".dtlearn").write_text("a file where the folder should be")
    assert "cannot be written" in keep("k", "?", 1.0)
    assert kept("k") is None
