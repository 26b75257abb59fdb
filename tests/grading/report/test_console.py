import io

import pytest

from dtlearn.grading.report.console import console, progress, wants_colour, wrap_fixed
from dtlearn.grading.verdict import Result

NAMES = ["optimal", "correct", "value", "hang", "timeout", "stub", "error", "hidden"]


@pytest.mark.parametrize("name", NAMES)
def test_golden(verdicts, golden, name):
    golden(f"{name}.txt", console(verdicts[name]))


def test_golden_after_due_date(verdicts, golden):
    golden("hidden-withheld.txt", console(verdicts["hidden"], level="after-due-date"))


def test_golden_in_colour(verdicts, golden):
    golden("value-colour.txt", console(verdicts["value"], colour=True))


@pytest.mark.parametrize("name", NAMES)
def test_80_columns_and_no_escapes(verdicts, name):
    text = console(verdicts[name])
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text


def test_colour_changes_nothing_else(verdicts):
    import re

    for verdict in verdicts.values():
        assert re.sub(r"\x1b\[\d*m", "", console(verdict, colour=True)) == console(verdict)


def test_hostile(hostile, harmless):
    text = console(hostile)
    harmless(text)
    assert max(map(len, text.splitlines())) <= 80
    harmless(console(hostile, colour=True), escapes=True)


def test_huge(huge, harmless):
    text = console(huge)
    harmless(text)
    assert len(text) < 40_000
    assert "characters left out" in text


def test_a_table_that_is_too_wide_loses_its_last_column_to_the_next_line():
    rows = ["  rank 0  waits  all_reduce #3  line 25: dist.all_reduce(x)", "  rank 1  ended  no such call"]
    assert wrap_fixed(rows, 80) == rows
    narrow = wrap_fixed(rows, 40)
    assert max(map(len, narrow)) <= 40
    assert narrow[0].startswith("  rank 0  waits  all_reduce #3")
    assert " ".join(" ".join(narrow).split()) == " ".join(" ".join(rows).split())


def test_progress_does_not_name_hidden_cases():
    assert progress(Result("even", 2, "passed"), 3, 12) == " 3 of 12  ok       even, 2 ranks"
    assert "secret" not in progress(Result("secret", 2, "failed", hidden=True), 3, 12)


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("stream", "environ", "wanted"),
    [
        (Terminal(), {}, True),
        (Terminal(), {"NO_COLOR": "1"}, False),
        (Terminal(), {"NO_COLOR": ""}, True),
        (Terminal(), {"TERM": "dumb"}, False),
        (io.StringIO(), {}, False),
    ],
)
def test_wants_colour(stream, environ, wanted):
    assert wants_colour(stream, environ) is wanted
