"""Bounded output: everything below the limit, beginning and end above it."""

import itertools

import numpy as np
import pytest

from dtlearn.runtime.output import CELL_LIMIT, RANK_COLORS, BoundedText, OutputCap, rank_color

# What is left of a colour, in linear RGB: Machado, Oliveira and Fernandes, IEEE TVCG 15(6), 2009, severity 1.
VISION = {
    "all colours": np.eye(3),
    "protanopia": np.array([[0.1523, 1.0526, -0.2049], [0.1145, 0.7863, 0.0992], [-0.0039, -0.0481, 1.0520]]),
    "deuteranopia": np.array([[0.3673, 0.8606, -0.2280], [0.2801, 0.6725, 0.0474], [-0.0118, 0.0429, 0.9689]]),
    "tritanopia": np.array([[1.2555, -0.0767, -0.1788], [-0.0784, 0.9308, 0.1476], [0.0047, 0.6914, 0.3039]]),
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def seen(color, vision):
    """A colour in CIELAB, as somebody sees it."""
    part = np.frombuffer(bytes.fromhex(color[1:]), np.uint8) / 255
    linear = np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)
    xyz = TO_XYZ @ np.clip(VISION[vision] @ linear, 0, 1) / np.array([0.95047, 1, 1.08883])
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("vision", VISION)
def test_eight_ranks_are_told_apart_with_any_colour_vision(vision):
    distances = [
        float(np.linalg.norm(seen(a, vision) - seen(b, vision))) for a, b in itertools.combinations(RANK_COLORS, 2)
    ]
    assert len(RANK_COLORS) == 8 and min(distances) > 15
    assert rank_color(9) == RANK_COLORS[1]


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
