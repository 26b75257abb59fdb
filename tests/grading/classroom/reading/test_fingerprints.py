"""Fingerprints do not see names, comments and layout, and are of whatever was handed in."""

import pytest

from dtlearn.grading.classroom.reading.fingerprints import GRAM, fingerprints


def test_names_comments_and_layout_do_not_count():
    one = "def f(x, y):\n    'What.'\n    return x.clone() + y * 3, 'text'\n"
    other = "# mine\ndef g(left,\n      right):\n\n    return left.clone()+right*3, 'words'  # a sum\n"
    assert fingerprints(one) == fingerprints(other) != frozenset()
    assert fingerprints(one) != fingerprints(one.replace("clone", "detach"))


@pytest.mark.parametrize("text", ["", "def f(x", "'''", "\0", "((((" * 500, "x = 1\n", "e = '\ud800'", "\t x\n  y\n z"])
def test_any_text_has_some(text):
    assert isinstance(fingerprints(text), frozenset)


def test_a_text_of_fewer_tokens_than_a_run_has_none():
    assert not fingerprints("x " * (GRAM - 1)) and len(fingerprints("x " * GRAM)) == 1
