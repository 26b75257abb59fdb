from dataclasses import replace

import pytest

from dtlearn.grading.classroom.gradescope import gradescope
from dtlearn.grading.classroom.lti import lti_scores
from dtlearn.grading.report.console import console
from dtlearn.grading.report.html import html
from dtlearn.grading.report.junit import junit
from dtlearn.grading.report.learner_view import learner_view

# Parts of the hidden results in conftest: name, line, value, rank's bytes, details, exact code, seed.
SECRETS = ("secret", "31", "3x", "12288", "12,288", "FACTOR", "20261120", "summed")


def formats(verdict, level, noon):
    yield console(verdict, level=level)
    yield html(verdict, level=level)
    yield junit([verdict], level=level)
    yield gradescope([verdict], level=level)
    yield lti_scores({"ada": [verdict]}, {}, graded=noon, level=level)
    yield learner_view(verdict, level).to_json()


@pytest.mark.parametrize("level", ["category", "after-due-date"])
def test_no_format_tells_what_is_hidden(verdicts, noon, level):
    for text in formats(verdicts["hidden"], level, noon):
        assert [s for s in SECRETS if s in text] == []


def test_full_tells_all(verdicts):
    text = console(verdicts["hidden"], level="full")
    assert [s for s in ("secret details", "3x", "FACTOR", "20261120") if s not in text] == []


def test_category(verdicts):
    view = learner_view(verdicts["hidden"])
    hidden = [r for r in view.results if r.hidden]
    assert [(r.case, r.world_size, r.state, r.code) for r in hidden] == [
        ("hidden case 1", 2, "passed", ""),
        ("hidden case 1", 3, "failed", "DTL-VALUE"),
        ("hidden case 2", 3, "passed", ""),
    ]
    assert {(r.rank, r.line, r.bytes, r.details) for r in hidden} == {(None, None, None, ())}
    assert (view.state, view.score) == ("failed", 3.75)


def test_after_due_date_does_not_tell_how_it_went(verdicts):
    failed = verdicts["hidden"]
    results = tuple(replace(r, state="passed", code="", headline="", advice="") for r in failed.results)
    passed = replace(failed, state="passed", score=5.0, results=results, notes=(), tier="good", seconds=9.0)
    one, other = (learner_view(v, "after-due-date") for v in (failed, passed))
    assert one == other
    assert (one.withheld, one.state, len(one.results)) == (3, "passed", 1)


def test_only_hidden_cases(verdicts):
    verdict = replace(verdicts["hidden"], results=verdicts["hidden"].results[1:])
    assert learner_view(verdict, "after-due-date").state == "skipped"
    assert "passed" not in console(verdict, level="after-due-date").lower()


def test_the_grader_s_own_error_is_never_hidden(verdicts):
    results = tuple(replace(r, hidden=True) for r in verdicts["error"].results)
    for level in ("category", "after-due-date"):
        assert learner_view(replace(verdicts["error"], results=results), level).state == "error"


def test_without_hidden_cases_nothing_is_left_out(verdicts):
    for name in ("optimal", "value", "hang"):
        assert learner_view(verdicts[name], "after-due-date") == learner_view(verdicts[name], "full")


def test_unknown_level(verdicts):
    with pytest.raises(ValueError, match="level of feedback"):
        learner_view(verdicts["value"], "some")
