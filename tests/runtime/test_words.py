"""Ranks, ordinals, columns and seconds in words, and the line on a record that lacks something."""

import pytest

from dtlearn.runtime.words import (
    columns,
    counted,
    first_line,
    format_seconds,
    incomplete,
    listed,
    ordinal,
    ranks_text,
    runs,
    without_addresses,
)
from tests.runtime.full_disk import LINE


def test_one_is_no_plural():
    assert [counted(n, "sample") for n in (0, 1, 2, 1000)] == ["0 samples", "1 sample", "2 samples", "1,000 samples"]


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ([2], "rank 2"),
        ([0, 1], "ranks 0 and 1"),
        ([3, 1, 2], "ranks 1-3"),
        ([0, 1, 2, 5], "ranks 0-2 and 5"),
        ([0, 2, 4], "ranks 0, 2 and 4"),
    ],
)
def test_ranks_in_words(ranks, text):
    assert ranks_text(ranks) == text


def test_numbers_that_follow_each_other_are_one_row():
    assert runs([5, 0, 2, 1]) == [(0, 2), (5, 5)]
    assert runs([]) == []


def test_a_list_in_words():
    assert [listed("a"), listed("ab", "or"), listed([1, 2, 4])] == ["a", "a or b", "1, 2 and 4"]


def test_each_incomplete_log_has_a_line():
    assert incomplete({}) == ""
    assert incomplete({1: "No space left on device", 0: ""}) == LINE
    assert incomplete({1: "b", 0: "a"}).splitlines() == [
        "the record of rank 0 is incomplete: a",
        "the record of rank 1 is incomplete: b",
    ]


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1, "1st"),
        (2, "2nd"),
        (3, "3rd"),
        (4, "4th"),
        (11, "11th"),
        (12, "12th"),
        (13, "13th"),
        (21, "21st"),
        (112, "112th"),
    ],
)
def test_ordinals(number, text):
    assert ordinal(number) == text


def test_columns_line_up():
    rows = [("name", "median"), ("longer name", "1 s")]
    assert columns(rows) == ["  name         median", "  longer name  1 s"]
    assert columns(rows, right=[1], indent="") == ["name         median", "longer name     1 s"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.00123, "1.23 ms"),
        (0.0123, "12.3 ms"),
        (0.0994, "99.4 ms"),
        (0.364, "364 ms"),
        (0.9994, "999 ms"),
        (0.9999, "1 s"),
        (3.394, "3.39 s"),
        (12.345, "12.3 s"),
    ],
)
def test_three_figures_and_a_unit(seconds, text):
    assert format_seconds(seconds) == text


def test_first_line():
    assert first_line(ValueError("\nfirst\nsecond")) == "first"
    assert first_line(ValueError()) == "ValueError"


def test_addresses_in_memory_are_left_out_of_a_text():
    assert without_addresses("no <Thing object at 0x7f1c> at 0") == "no <Thing object> at 0"
