import random
import time

import pytest

from dtlearn.notebook.merge_lines import _MANY, fold_lines, label, settle


def folded(*ranks: str) -> list[str]:
    """What is shown when each rank printed those lines, one character a line."""
    return [f"{label(who)} {line}" for who, line in fold_lines(dict(enumerate(map(list, ranks))))]


def test_equal_output_is_shown_once():
    assert folded("ab", "ab", "ab") == ["[0-2] a", "[0-2] b"]


def test_different_output_stands_by_rank():
    assert folded("ab", "cd") == ["[0] a", "[0] b", "[1] c", "[1] d"]
    assert folded("a", "b", "a") == ["[0,2] a", "[1] b"]


def test_shared_lines_anchor_what_differs():
    assert folded("a1z", "a2z", "a1z") == ["[0-2] a", "[0,2] 1", "[1] 2", "[0-2] z"]
    # Only what all share is an anchor: `b` is not.
    assert folded("1b", "2b", "3c") == ["[0] 1", "[0] b", "[1] 2", "[1] b", "[2] 3", "[2] c"]


@pytest.mark.parametrize(
    ("ranks", "shown"),
    [
        (("xab", "ab"), ["[0] x", "[0-1] a", "[0-1] b"]),
        (("ab", "axb"), ["[0-1] a", "[1] x", "[0-1] b"]),
        (("ab", "ab", "abx"), ["[0-2] a", "[0-2] b", "[2] x"]),
        (("aa", "a"), ["[0-1] a", "[0] a"]),
        (("ab", "ba"), ["[0] a", "[0-1] b", "[1] a"]),
    ],
)
def test_extra_lines_of_one_rank_stand_where_it_printed_them(ranks, shown):
    assert folded(*ranks) == shown


def test_a_silent_rank_is_not_named_and_disturbs_nothing():
    assert folded("ab", "", "ab") == ["[0,2] a", "[0,2] b"]
    assert folded("", "") == folded() == []


def test_an_empty_line_is_a_line():
    assert fold_lines({0: ["", "a"], 1: ["a"]}) == [([0], ""), ([0, 1], "a")]


def test_the_order_of_arrival_does_not_matter():
    lines = {r: [f"step {i}" if i % 2 else f"loss {i} of {r}" for i in range(8)] for r in range(4)}
    expected = fold_lines(lines)
    assert [who for who, _ in expected[:5]] == [[0], [1], [2], [3], [0, 1, 2, 3]]
    for seed in range(5):
        ranks = list(lines)
        random.Random(seed).shuffle(ranks)
        assert fold_lines({r: lines[r] for r in ranks}) == expected


def test_each_rank_can_be_read_back():
    for seed in range(200):
        chance = random.Random(seed)
        ranks = {r: chance.choices("abc", k=chance.randrange(8)) for r in range(3)}
        shown = fold_lines(ranks)
        assert {r: [line for who, line in shown if r in who] for r in ranks} == ranks


@pytest.mark.parametrize(
    ("count", "line"),
    [
        (_MANY // 4, lambda rank, i: [f"loss {i} of {rank}", "-----"]),  # as many as are compared; every second recurs
        (_MANY // 2, lambda rank, i: ["same" if i else f"rank {rank}"]),
        (20_000, lambda rank, i: [f"{i} of {rank}"]),
        (20_000, lambda rank, i: [f"{i}"]),
    ],
)
def test_long_outputs_do_not_take_long(count, line):
    ranks = {r: [text for i in range(count) for text in line(r, i)] for r in range(2)}
    begun = time.process_time()
    shown = fold_lines(ranks)
    assert time.process_time() - begun < 5
    for rank in range(2):
        assert [text for who, text in shown if rank in who] == ranks[rank]


def test_very_long_outputs_that_differ_stand_side_by_side():
    ranks = {r: [f"{r}"] + ["shared"] * _MANY for r in range(2)}
    assert [who for who, _ in fold_lines(ranks)] == [[0]] * (_MANY + 1) + [[1]] * (_MANY + 1)


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ([0], "[0]"),
        ([0, 1], "[0-1]"),
        ([3, 1, 2, 0], "[0-3]"),
        ([0, 2], "[0,2]"),
        ([0, 1, 3, 5, 6, 7], "[0-1,3,5-7]"),
        ([-1], "[launcher]"),
    ],
)
def test_label(ranks, text):
    assert label(ranks) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\nb\n", "a\nb\n"),
        ("a\r\nb\r\n", "a\nb\n"),
        ("\r 0%\r 50%\r100%\ndone\n", "100%\ndone\n"),  # tqdm
        ("\r 0%\r 50%", " 50%"),  # a bar that has not ended
        (" 50%\r", " 50%"),
        ("\r100%\r    \r", "    "),  # a bar that is wiped out at its end
        ("", ""),
    ],
)
def test_settle_shows_what_a_terminal_would(text, shown):
    assert settle(text) == shown
