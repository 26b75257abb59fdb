from dataclasses import replace

import pytest

from dtlearn.grading.report import words
from dtlearn.grading.report.console import console
from dtlearn.grading.report.html import html
from dtlearn.grading.verdict import Result


def test_grid_has_every_case_and_size():
    results = [Result("a", 1, "passed"), Result("b", 2, "failed"), Result("", 0, "error")]
    assert words.grid(results) == ([1, 2], [("a", ["passed", None]), ("b", [None, "failed"])])


def test_blocks_keep_tables_and_tracebacks_apart_from_prose():
    traceback = ["Traceback (most recent call last):", "  File", "E: x"]
    lines = ["  rank 0  waits", "  rank 1  ended", "Why.", "", *traceback, "More."]
    assert words.blocks(lines) == [
        (True, ["  rank 0  waits", "  rank 1  ended"]),
        (False, ["Why."]),
        (True, traceback),
        (False, ["More."]),
    ]


def test_tier_is_told_only_where_there_are_budgets(verdicts):
    assert words.tier_words(verdicts["optimal"]) == "optimal"
    assert words.tier_words(verdicts["correct"]) == "good"
    assert words.next_tier(verdicts["correct"]).startswith("For optimal: at most 8,192 bytes")
    assert words.other_notes(verdicts["correct"]) == ["the output was cut"]
    assert words.tier_words(verdicts["value"]) == ""


@pytest.mark.parametrize("code", ["DTL-LOAD", "DTL-SKIPPED-TIME"])
def test_a_case_that_could_have_been_judged_is_said_to_be_left_out_and_why(verdicts, code):
    left_out = Result("x", 2, "skipped", code, "not judged: the machine was busy")
    verdict = replace(verdicts["correct"], results=(left_out, left_out))
    text = "not every case was judged: the machine was busy. Grade again when less runs on this machine."
    assert words.other_notes(verdict) == [text, "the output was cut"]
    assert f"Note: {text}" in " ".join(console(verdict).split()) and text in html(verdict)


def test_other_faults(verdicts):
    assert words.other_faults(verdicts["value"]) == "Also wrong: uneven parts, 4 ranks."
    assert words.other_faults(verdicts["optimal"]) == ""


def test_a_second_mistake_is_told_beside_the_first(verdicts):
    first, *_ = (r for r in verdicts["value"].results if r.state != "passed")
    second = Result("left is None", 2, "failed", "DTL-VALUE-ZEROED", "it became zeros")
    verdict = replace(verdicts["value"], results=(first, second, replace(second, world_size=3)))
    text = "And another fault, left is None, 2 ranks [DTL-VALUE-ZEROED]: it became zeros."
    assert words.other_faults(verdict) == text
    assert text in " ".join(console(verdict).split()) and text in html(verdict)


def test_plain_wrong_values_count_as_the_mistake_that_is_named(verdicts):
    named = Result("uneven", 2, "failed", "DTL-VALUE-COUNT", "multiplied by the count")
    plain = replace(named, world_size=1, code="DTL-VALUE", headline="the result should be 3; it is 9")
    lucky = replace(named, case="empty", code="DTL-WS", headline="right with 2 ranks, wrong with 1: it is 9")
    verdict = replace(verdicts["value"], results=(plain, named, lucky))
    assert words.other_faults(verdict) == "Also wrong: uneven, 1 rank; empty, 2 ranks."
    raised = replace(named, code="DTL-RAISED", headline="rank 0 raised ValueError")  # does not name one
    said = "And another fault, uneven, 1 rank [DTL-VALUE]: the result should be 3; it is 9."
    assert words.other_faults(replace(verdict, results=(raised, plain))) == said


def test_report_lines_have_what_a_maintainer_needs(verdicts):
    text = "\n".join(words.report_lines(verdicts["error"]))
    for needed in ("ch03.average_gradients", "20261120", "torch 2.13.0", "DTL-GRADER", "judge.py", "uneven parts"):
        assert needed in text
