"""Ranks, ordinals, columns and seconds as text for a person. Imports nothing of dtlearn."""

import re
import textwrap
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

V = TypeVar("V", bound=Hashable)
_SECOND_STEPS = (("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9))


def ordinal(number: int) -> str:
    """1 -> "1st", 2 -> "2nd", 11 -> "11th"."""
    suffix = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{suffix}"


def counted(number: int, noun: str) -> str:
    """A number of things: "1 sample", "2 samples"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def wrapped(message: str, width: int = 92) -> list[str]:
    """A message as lines that a notebook shows without breaking words. Indented lines, such as tables, stay whole."""
    lines = []
    for line in message.splitlines():
        lines += [line] if line.startswith((" ", "> ")) else textwrap.wrap(line, width, break_long_words=False) or [""]
    return lines


def without_middle(text: str, most: int = 10_000) -> str:
    """A text cut to about so many characters: an exception may hold a tensor as text, or a file."""
    left_out = len(text) - most
    return text if left_out <= 0 else f"{text[: most // 2]}\n... ({left_out:,} characters) ...\n{text[-most // 2 :]}"


def without_addresses(text: str) -> str:
    """A text without addresses in memory, which differ from rank to rank and from run to run."""
    return re.sub(r" at 0x[0-9a-f]+", "", text)


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or its type if it has none."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def ranks_text(ranks: list[int]) -> str:
    """Ranks for a person: "rank 2", "ranks 0-2 and 5"."""
    parts = [text for a, b in runs(ranks) for text in ([f"{a}-{b}"] if b > a + 1 else map(str, range(a, b + 1)))]
    return ("rank " if len(ranks) == 1 else "ranks ") + listed(parts)


def runs(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Numbers that follow each other, as the first and the last of each row: 0, 1, 2, 5 -> (0, 2), (5, 5)."""
    rows: list[tuple[int, int]] = []
    for number in sorted(numbers):
        begins = rows.pop()[0] if rows and number == rows[-1][1] + 1 else number
        rows.append((begins, number))
    return rows


def listed(parts: Iterable[object], word: str = "and") -> str:
    """ "2", "2 and 4", "2, 3 and 4". At least one."""
    *first, last = map(str, parts)
    return f"{', '.join(first)} {word} {last}" if first else last


def by_value(values: Mapping[int, V]) -> dict[V, list[int]]:
    """The ranks of each value."""
    ranks: dict[V, list[int]] = {}
    for rank, value in values.items():
        ranks.setdefault(value, []).append(rank)
    return ranks


def parties_text(values: Mapping[int, str], verb: str, again: str, many: str) -> str:
    """ "ranks 0 and 2 call all_reduce, rank 1 calls barrier"; with more than three parties: "... call `many`"."""
    parties = by_value(values)
    if len(parties) > 3:
        return f"{ranks_text(list(values))} {verb}{many}"
    texts: list[str] = []
    for value, ranks in parties.items():
        words = again if texts else verb
        texts.append(f"{ranks_text(ranks)} {words.replace('call', 'calls', 1) if len(ranks) == 1 else words}{value}")
    return ", ".join(texts)


def incomplete(faults: Mapping[int, str]) -> str:
    """Which ranks' records lack something, and why, for a person; "" if none does. `faults`: {rank: reason}."""
    return "\n".join(f"the record of rank {rank} is incomplete: {why}" for rank, why in sorted(faults.items()) if why)


def columns(rows: Sequence[Sequence[str]], right: Collection[int] = (), indent: str = "  ") -> list[str]:
    """Rows as aligned lines. `right`: which columns stand at the right, such as those of numbers."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    pads = [str.rjust if number in right else str.ljust for number in range(len(widths))]
    lines = []
    for row in rows:
        cells = [pad(cell, width) for pad, cell, width in zip(pads, row, widths, strict=True)]
        lines.append(indent + "  ".join(cells).rstrip())
    return lines


def significant(value: float, digits: int = 3) -> str:
    """`value` with about `digits` significant digits and no exponent: 0.5, 4.19, 37.7, 1,024."""
    if value == 0:
        return "0"
    if abs(value) >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def format_seconds(seconds: float) -> str:
    """Seconds as text with three significant digits ("35 us", "1.24 ms", "3.1 s", "5 min 2 s")."""
    if abs(seconds) >= 120:
        return f"{seconds // 60:,.0f} min {seconds % 60:.0f} s"
    for name, step in _SECOND_STEPS:
        if abs(seconds) >= 0.9995 * step:  # what rounds to 1,000 of the next unit is 1 of this one
            return f"{significant(seconds / step)} {name}"
    return "0 s" if seconds == 0 else f"{significant(seconds / 1e-9)} ns"
