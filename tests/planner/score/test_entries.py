"""Files of others are read whatever is in them, and judged by their own tolerance."""

import json

import pytest

from dtlearn.planner.score.entries import BUILT_IN, PublishedNumber, read_entries


def test_the_files_own_entries_are_read():
    entries = read_entries()
    assert len(entries) == 134 == len(json.loads(BUILT_IN.read_text("utf-8"))["entries"])
    assert len({entry.id for entry in entries}) == 134
    assert all(entry.target and entry.group and entry.kind for entry in entries)


@pytest.mark.parametrize(
    ("tolerance", "value", "inside"),
    [
        ({"rel": 0.1}, 110.0, True),
        ({"rel": 0.1}, 110.1, False),
        ({"abs": 3}, 97.0, True),
        ({"abs": 3}, 96.9, False),
        ({"abs": 0}, 100.0, True),
        ({"abs": 0}, 100.1, False),
        ({"abs": 1, "rel": 0.1}, 108.0, True),
        ({}, 109.0, True),
        ({}, 111.0, False),
        ({"rel": "much"}, 109.0, True),
        ({"rel": 0.1}, float("nan"), False),
    ],
)
def test_a_tolerance_is_absolute_or_relative(tolerance, value, inside):
    assert PublishedNumber("", "", expected=100, tolerance=tolerance).accepts(value) is inside


@pytest.mark.parametrize("expected", ["p*M_B", None, True, [1]])
def test_what_is_no_number_is_never_inside(expected):
    assert not PublishedNumber("", "", expected=expected).accepts(1.0)


def test_broken_rows_are_rows_all_the_same(tmp_path):
    file = tmp_path / "runs.json"
    file.write_text(json.dumps([1, {}, {"id": "x", "inputs": 3, "tolerance": None, "planner_target": "params.count"}]))
    first, second, third = read_entries(file)
    assert (first.id, second.id, third.id, third.target) == ("entry 0", "entry 1", "x", "params.count")
    assert third.inputs == third.tolerance == {}


def test_numbers_that_nothing_can_be_compared_with_are_text(tmp_path):
    file = tmp_path / "runs.json"
    file.write_text('[{"expected": 1%s}, {"expected": NaN, "tolerance": {"rel": Infinity}}]' % ("0" * 400))
    large, none = read_entries(file)
    assert large.expected == str(10**400) and (none.expected, none.tolerance) == ("nan", {"rel": "inf"})
    assert not large.accepts(1.0) and not none.accepts(1.0)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "cannot read"),
        ("{}", "no list of `entries`"),
        ("3", "no list"),
        ("[" * 100_000, "nested too deeply"),
        ("[" + "1" * 5000 + "]", "cannot read"),
    ],
)
def test_a_file_that_is_none_is_said(tmp_path, text, says):
    file = tmp_path / "runs.json"
    file.write_text(text)
    with pytest.raises(ValueError, match=says):
        read_entries(file)
    with pytest.raises(ValueError, match="cannot read"):
        read_entries(tmp_path / "none.json")
