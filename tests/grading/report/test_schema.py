"""`verdict-1.json`, the JSON Schema of a stored verdict: the contract with everything that reads one."""

import json
from dataclasses import fields
from pathlib import Path

import jsonschema
import pytest

from dtlearn.grading.report.learner_view import learner_view
from dtlearn.grading.verdict import FORMAT, Result, Verdict

SCHEMA = json.loads(Path(__file__).with_name(f"verdict-{FORMAT}.json").read_text(encoding="utf-8"))


def validate(text):
    jsonschema.Draft202012Validator(SCHEMA).validate(json.loads(text))


def test_the_schema_is_valid():
    rules = jsonschema.Draft202012Validator(jsonschema.Draft202012Validator.META_SCHEMA)
    assert SCHEMA["$schema"] == rules.schema["$id"]
    assert not list(rules.iter_errors(SCHEMA))
    assert list(rules.iter_errors({**SCHEMA, "required": "state"}))


def test_every_verdict_fits_and_reads_back(verdicts):
    for verdict in verdicts.values():
        for level in ("full", "category", "after-due-date"):
            view = learner_view(verdict, level)
            validate(view.to_json())
            assert Verdict.from_json(view.to_json()) == view


def test_hostile_fits(hostile):
    validate(hostile.to_json())
    assert Verdict.from_json(hostile.to_json()) == hostile


@pytest.mark.parametrize("name", ["optimal", "hang", "hidden"])
def test_golden(verdicts, golden, name):
    golden(f"{name}.json", learner_view(verdicts[name]).to_json() + "\n")


def test_every_field_is_described():
    assert set(SCHEMA["properties"]) == {"format", *(f.name for f in fields(Verdict))}
    assert set(SCHEMA["$defs"]["result"]["properties"]) == {f.name for f in fields(Result)}


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"state": "fine"},
        {"score": -1},
        {"score": "5"},
        {"more": 1},
        {"results": [{"case": "x"}]},
        {"tier": "great"},
    ],
)
def test_what_is_no_verdict_does_not_fit(verdicts, change):
    data = json.loads(verdicts["value"].to_json()) | change
    with pytest.raises(jsonschema.ValidationError):
        validate(json.dumps(data))
