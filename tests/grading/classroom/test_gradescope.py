import json

import pytest

from dtlearn.grading.classroom.gradescope import gradescope

VISIBILITIES = {"visible", "hidden", "after_due_date", "after_published"}


@pytest.mark.parametrize("name", ["optimal", "value", "error", "hidden"])
def test_golden(verdicts, golden, name):
    golden(f"{name}.gradescope.json", gradescope([verdicts[name]]))


def test_contract(verdicts):
    made = json.loads(gradescope(list(verdicts.values())))
    assert set(made) <= {
        *("score", "execution_time", "output", "output_format", "test_output_format", "test_name_format"),
        *("visibility", "stdout_visibility", "extra_data", "tests"),
    }
    assert {made["visibility"], made["stdout_visibility"]} <= VISIBILITIES
    assert made["stdout_visibility"] == "hidden"
    for test in made["tests"]:
        assert set(test) == {
            *("name", "number", "score", "max_score", "status", "output", "output_format", "tags", "visibility"),
            "extra_data",
        }
        assert test["visibility"] in VISIBILITIES
        assert test["status"] in ("passed", "failed")
    assert len({t["number"] for t in made["tests"]}) == len(made["tests"])


def test_the_tests_add_up_to_the_score(verdicts):
    # one rank alone has no points where there are other cases
    for name, score in (("optimal", 5.0), ("stub", 0.0), ("error", 0.0)):
        made = json.loads(gradescope([verdicts[name]]))
        assert sum(t["score"] for t in made["tests"]) == pytest.approx(score, abs=1e-3)
        assert sum(t["max_score"] for t in made["tests"]) == pytest.approx(5.0, abs=1e-3)


def test_hidden_after_the_due_date(verdicts):
    made = json.loads(gradescope([verdicts["hidden"]], level="after-due-date"))
    assert [t["visibility"] for t in made["tests"]] == ["visible", *["after_due_date"] * 3]
    assert "3.75" not in made["output"]
    assert made["score"] == 3.75  # for the staff; Gradescope shows no total while tests are not visible


def test_an_error_is_for_a_person(verdicts):
    made = json.loads(gradescope([verdicts["optimal"], verdicts["error"]]))
    assert made["extra_data"] == {"needs_a_person": True}
    assert "not your fault" in made["output"]


def test_hostile(hostile, harmless):
    def texts(value):
        if isinstance(value, dict):
            return [t for k, v in value.items() for t in [k, *texts(v)]]
        if isinstance(value, list):
            return [t for v in value for t in texts(v)]
        return [value] if isinstance(value, str) else []

    for text in texts(json.loads(gradescope([hostile]))):
        harmless(text)


def test_huge(huge):
    assert len(gradescope([huge])) < 60_000
