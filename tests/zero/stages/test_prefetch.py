"""The order of units: as registered at first, then as seen."""

import pytest

from dtlearn.zero.stages.prefetch import Prefetcher


def forward(prefetcher, units):
    prefetcher.forward_begins()
    return ["".join(prefetcher.next_in_forward(unit)) for unit in units]


def backward(prefetcher, units):
    return ["".join(prefetcher.next_in_backward(unit)) for unit in units]


@pytest.mark.parametrize(
    ("depth", "ahead", "behind"),
    [
        (0, ["", "", "", ""], ["", "", "", ""]),
        (1, ["b", "c", "d", ""], ["c", "b", "a", ""]),
        (2, ["bc", "cd", "d", ""], ["cb", "ba", "a", ""]),
        (9, ["bcd", "cd", "d", ""], ["cba", "ba", "a", ""]),
    ],
)
def test_the_first_pass_expects_the_order_of_registration(depth, ahead, behind):
    prefetcher = Prefetcher("abcd", depth)
    assert forward(prefetcher, "abcd") == ahead
    assert backward(prefetcher, "dcba") == behind


def test_later_passes_expect_what_the_last_one_did():
    prefetcher = Prefetcher("abcd", 1)
    assert forward(prefetcher, "acbb") == ["b", "c", "d", ""]  # wrong guesses, for the model runs in its own order
    assert forward(prefetcher, "acbb") == ["c", "b", "b", ""]
    assert backward(prefetcher, "bca") == ["b", "a", ""]  # the last use counts
    assert forward(prefetcher, "ac") == ["c", "b"]
    assert backward(prefetcher, "bca") == ["", "a", ""]  # b was not used


def test_a_pass_without_a_unit_changes_no_expectation():
    prefetcher = Prefetcher("ab", 1)
    forward(prefetcher, "")
    assert forward(prefetcher, "ab") == ["b", ""]


def test_a_negative_depth_is_refused():
    with pytest.raises(ValueError, match="prefetch is a number of units, 0 or more; got -1"):
        Prefetcher("ab", -1)
