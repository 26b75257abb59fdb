import json
from datetime import datetime

import pytest

from dtlearn.grading.classroom.lti import lti_scores
from dtlearn.grading.classroom.students import Student


def lti(verdicts, students=None, *, graded):
    return lti_scores(verdicts, students or {}, graded=graded, level="category")


def test_golden(a_class, golden, noon):
    golden("class.lti.jsonl", lti(a_class, graded=noon))


def scores(text):
    return {line["score"]["userId"]: line["score"] for line in map(json.loads, text.splitlines())}


def test_states(a_class, noon):
    made = scores(lti(a_class, graded=noon))
    progress = {user: (s["activityProgress"], s["gradingProgress"], s.get("scoreGiven")) for user, s in made.items()}
    assert progress["ada"] == ("Completed", "FullyGraded", 5.0)
    assert progress["bo"] == ("Submitted", "FullyGraded", 3.3333)
    assert progress["chen"] == ("Submitted", "FullyGraded", 0.0)
    assert progress["eve"] == ("Submitted", "PendingManual", None)
    assert progress["finn"] == ("Initialized", "FullyGraded", 0.0)
    for score in made.values():
        assert ("scoreGiven" in score) == ("scoreMaximum" in score)
        assert datetime.fromisoformat(score["timestamp"]).microsecond == 250_000


def test_users_come_from_the_table(verdicts, noon):
    class_ = {"ada": [verdicts["optimal"]]}
    made = scores(lti(class_, {"ada": Student("a1", lti_user_id="u-77")}, graded=noon))
    assert list(made) == ["u-77"]
    assert list(scores(lti(class_, {"ada": Student("a1")}, graded=noon))) == ["a1"]
    assert list(scores(lti(class_, {}, graded=noon))) == ["ada"]


def test_the_time_needs_a_zone(a_class):
    with pytest.raises(ValueError, match="time zone"):
        lti(a_class, graded=datetime(2026, 1, 1))


def test_comment_names_the_fault(a_class, noon):
    comment = scores(lti(a_class, graded=noon))["chen"]["comment"]
    assert "rank 0 waits" in comment
    assert "DTL-COLL-SKIP" in comment


def test_hostile(hostile, noon, harmless):
    text = lti({"ada": [hostile]}, graded=noon)
    assert len(text.splitlines()) == 1
    harmless(json.loads(text)["score"]["comment"])


def test_huge(huge, noon):
    assert len(lti({"ada": [huge]}, graded=noon)) < 5_000
