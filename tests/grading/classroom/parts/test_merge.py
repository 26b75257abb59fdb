"""Verdicts of parts, taken together."""

import pytest

from dtlearn.grading.classroom.parts.merge import merge, stores_of_parts
from dtlearn.grading.classroom.parts.record import Part
from dtlearn.grading.classroom.reading.layouts import HandIn
from dtlearn.grading.classroom.store import ResultStore
from dtlearn.grading.classroom.submissions import Submission
from dtlearn.grading.verdict import Verdict

SHARES = [[HandIn("ann", "ann", ()), HandIn("ann", "ann@1", ())], [HandIn("bob", "bob", ())]]


@pytest.fixture
def folders(tmp_path, exercise):
    """Two parts: the first has both hand-ins of ann, the second bob's."""
    for k, share in enumerate(SHARES, start=1):
        store = ResultStore(tmp_path / str(k))
        for name in {"ann": ["ann", "ann/ann@1"], "bob": ["bob"]}[share[0].student]:
            store.save(name, Verdict(exercise.id, exercise.title, "passed", float(k), 4.0), f"text of {name}")
        Part(k, 2, {"secret": "x"}, tuple(one.entry for one in share), store.folder).save()
    return [tmp_path / "1", tmp_path / "2"]


def submission(name: str) -> Submission:
    return Submission(name, answers={"ch01.mean": f"text of {name}"})


def test_verdicts_come_from_their_parts_and_are_in_one_store(folders, exercise, tmp_path):
    before = {path: path.stat().st_mtime_ns for folder in folders for path in folder.rglob("*")}
    stores = stores_of_parts(folders[::-1], {}, lambda of: SHARES, str)
    assert {who: store.folder.name for who, store in stores.items()} == {"ann": "1", "bob": "2"}
    whole = ResultStore(tmp_path / "whole")
    submissions = [*map(submission, ("ann", "ann/ann@1", "bob")), Submission("absent")]
    found = merge([exercise], submissions, stores, str, whole)
    scores = {who: [(v.state, v.score) for v in verdicts] for who, verdicts in found.items()}
    assert scores["ann"] == scores["ann/ann@1"] == [("passed", 1.0)] and scores["bob"] == [("passed", 2.0)]
    assert scores["absent"] == [("not-attempted", 0.0)]
    assert whole.load("ann/ann@1", exercise.id, "text of ann/ann@1") == found["ann/ann@1"][0]
    assert {path: path.stat().st_mtime_ns for path in before} == before  # the parts are as they were


def test_an_answer_that_was_changed_after_its_part_was_graded_is_refused(folders, exercise, tmp_path):
    stores = stores_of_parts(folders, {}, lambda of: SHARES, str)
    with pytest.raises(ValueError, match=r"/2 has no verdict on what bob hands in for ch01.mean.* command again"):
        merge([exercise], [Submission("bob", answers={"ch01.mean": "new"})], stores, str, ResultStore(tmp_path / "w"))


def test_parts_that_are_no_class_have_no_stores(folders):
    with pytest.raises(ValueError, match="these are missing: 2"):
        stores_of_parts(folders[:1], {}, lambda of: SHARES, str)
