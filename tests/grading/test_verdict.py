import json
from dataclasses import replace

import pytest

from dtlearn.grading.verdict import Result, Verdict

PASSED = Result("a", 2, "passed", seconds=0.5, bytes=8, messages=1)
FAILED = Result("b", 3, "failed", "DTL-VALUE", "wrong", ("x", "y"), "look", 1, 7)
VERDICT = Verdict("ch01.mean", "The mean", "failed", 1.5, 3, results=(PASSED, FAILED), seed=4, notes=("n",))


def test_the_json_form_reads_back():
    assert Verdict.from_json(VERDICT.to_json()) == VERDICT


def test_the_first_fault_is_no_skipped_case():
    skipped = Result("c", 2, "skipped", "DTL-SKIPPED")
    verdict = Verdict("ch01.mean", "", "failed", 0, 1, results=(PASSED, skipped, FAILED))
    assert verdict.first_fault is FAILED and verdict.code == "DTL-VALUE" and not verdict.passed
    assert Verdict("ch01.mean", "", "passed", 1, 1, results=(PASSED,)).code == ""


def changed(**fields):
    return json.dumps({**json.loads(VERDICT.to_json()), **fields})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "null",
        changed(format=2),
        changed(state="won"),
        changed(results=[{"case": "a"}]),
        changed(results=5),
        changed(results=[{**json.loads(VERDICT.to_json())["results"][0], "state": "won"}]),
        changed(surprise=1),
        changed(notes=None),
    ],
)
def test_what_is_no_verdict_is_refused(text):
    with pytest.raises(ValueError):
        Verdict.from_json(text)


def test_the_fault_that_names_the_mistake_comes_first():
    vague = Result("a", 2, "failed", "DTL-VALUE", "1 of 3 elements are wrong")
    alone = Result("a", 1, "failed", "DTL-P2P-UNMATCHED", "rank 0 sends to itself")
    named = Result("a", 3, "failed", "DTL-VALUE-TWICE", "one step too many")

    def first(*results):
        return Verdict("ch01.x", "X", "failed", 0, 1, results=results).first_fault

    assert first(alone, vague, named) is named
    assert first(vague, alone) is vague and first(alone) is alone
    assert first(replace(alone, world_size=2), named).world_size == 2
