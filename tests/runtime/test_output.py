"""Bounded output: everything below the limit, beginning and end above it."""

import pytest

from dtlearn.runtime.output import CELL_LIMIT, BoundedText, OutputCap


@pytest.mark.parametrize("piece", [1, 3, 10, 100])
def test_text_below_the_limit_is_kept_whole(piece):
    text = "".join(f"line {i}\n" for i in range(10))
    kept = BoundedText(limit=100)
    for start in range(0, len(text), piece):
        kept.add(text[start : start + piece].encode())
    assert kept.text() == text


@pytest.mark.parametrize("piece", [1, 7, 64, 5000])
def test_above_it_the_beginning_and_the_end_are_kept(piece):
    data = "".join(f"{i:04}" for i in range(1250)).encode()
    kept = BoundedText(limit=80)
    for start in range(0, len(data), piece):
        kept.add(data[start : start + piece])
    head, note, tail = kept.text().split("\n")
    assert head == data[:40].decode()
    assert tail == data[-40:].decode()
    assert note == "[... 4,920 bytes of output left out ...]"


def test_memory_stays_bounded():
    kept = BoundedText(limit=1000)
    for _ in range(1000):
        kept.add(b"x" * 700)
    assert len(kept._head) + len(kept._tail) < 4000
    assert kept.total == 700_000


def test_broken_characters_are_shown_and_not_fatal():
    kept = BoundedText()
    kept.add(b"caf\xc3")
    kept.add(b"\xa9 \xff")
    assert kept.text() == "café \N{REPLACEMENT CHARACTER}"


def test_a_cell_shows_up_to_its_limit_then_says_so_once():
    shown: list[str] = []
    cap = OutputCap(3, 2)
    assert cap.limit == CELL_LIMIT // 2
    cap.pass_on("x" * (cap.limit - 1), shown.append)
    cap.pass_on("y", shown.append)
    assert sum(map(len, shown)) == cap.limit
    for _ in range(3):
        cap.pass_on("z", shown.append)
    assert shown[2:] == [f"\n[rank 3 printed more than {cap.limit:,} characters: the rest is not shown]\n"]
    cap.restart()
    cap.pass_on("next cell", shown.append)
    assert shown[-1] == "next cell"


def test_a_text_is_cut_in_the_middle_and_many_ranks_still_have_room():
    shown: list[str] = []
    cap = OutputCap(0, 64)
    assert cap.limit == 1_000_000
    cap.pass_on("x" * 2_000_000, shown.append)
    assert shown[0].startswith("x" * cap.limit + "\n[rank 0 printed more than 1,000,000")
    assert len(shown) == 1
