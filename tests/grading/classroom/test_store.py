"""Verdicts on disk: whole or not at all."""

import pytest

from dtlearn.grading.classroom.store import ResultStore
from dtlearn.grading.verdict import Result, Verdict

VERDICT = Verdict("ch01.mean", "Mean", "failed", 1.0, 4, results=(Result("a", 2, "failed", "DTL-VALUE", "wrong"),))


def test_a_verdict_comes_back_for_the_same_text_only(tmp_path):
    store = ResultStore(tmp_path / "out")
    store.save("ann", VERDICT, "x = 1")
    assert store.load("ann", "ch01.mean", "x = 1") == VERDICT
    assert store.load("ann", "ch01.mean", "x = 2") is None
    assert store.load("bob", "ch01.mean", "x = 1") is None


def test_a_damaged_verdict_is_none(tmp_path):
    store = ResultStore(tmp_path)
    store.save("ann", VERDICT, "x")
    path = store.path("ann", "ch01.mean")
    for text in ("", "{", path.read_text()[:-40], '{"format": 99}', '{"format": 1, "state": "passed"}'):
        path.write_text(text)
        assert store.load("ann", "ch01.mean", "x") is None


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="cannot be written"):
        ResultStore(tmp_path / "file" / "out")
