"""A class of 200, a fifth of it hostile: graded, interrupted in its middle, and graded to its end. Prints what it took.

    python -m tests.grading.classroom.hostile.class_of_200

Exit status 1: a row is wrong, a verdict was lost or made twice, something is left, or the class's seed can be read.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from dtlearn.grading.verdict import Verdict
from dtlearn.runtime.machine.run_folder import delete_folder

from .a_class import Graded, finish, interrupt, prepare, start, verdicts_on_disk
from .corpus import HAND_INS
from .hand_in import HandIn
from .honest import Row

MIB = 1 << 20


@dataclass
class Class:
    """What came of a class that was interrupted in its middle.

    Attributes:
        first, whole: its two parts.
        seconds: that the first one took.
        kept: final verdicts that were there when the second one began.
        faults: what is wrong, in sentences.
    """

    first: Graded
    whole: Graded
    seconds: float
    kept: int
    faults: list[str] = field(default_factory=list)


def hostile(number: int) -> list[HandIn]:
    """So many of the corpus: those that run with every change first, then others of every kind."""
    few = [one for one in HAND_INS if one.few][:number]
    rest = [one for one in HAND_INS if not one.few and "" not in one.codes]
    others = number - len(few)
    return few + (rest[:: len(rest) // others][:others] if others else [])


def wrong_rows(found: Graded, hand_ins: Sequence[HandIn], level: int) -> dict[str, object]:
    """Hostile hand-ins whose verdict is another than it should be; one for which there was no time gives no credit."""
    wrong: dict[str, object] = {}
    for one in hand_ins:
        row = found.rows.get(one.name)
        if row is None or row[0] == "error" or (row[3] and row[1] not in one.expected(level)):
            wrong[one.name] = row, one.expected(level)
        elif (row[0] == "passed") != (row[2] > 0):
            wrong[one.name] = row, "a score without a pass"
    return wrong


def wrong_honest(found: Graded, rows: Mapping[str, Row]) -> dict[str, object]:
    """Honest students whose verdict or points are not their own. What there was no time for has no points."""
    wrong: dict[str, object] = {}
    for name, (state, code, points) in rows.items():
        row, told = found.rows.get(name), found.points.get(name)
        if row is None or told is None or row[0] == "error":
            wrong[name] = row, told
        elif (*row[:2], told) != (state, code, str(points)) if row[3] else told:
            wrong[name] = row, told, (state, code, points)
    return wrong


def grade_in_two_parts(root: Path, honest: int, hand_ins: Sequence[HandIn], workers: int, limit: float) -> Class:
    """Grade a class in `root`, interrupt it when half of it is graded, and go on; `limit` in seconds, for each part."""
    rows = prepare(root, hand_ins, honest)
    more = ["--workers", str(workers)]
    begun = time.monotonic()
    first = interrupt(root, start(root, 2, *more), (honest + len(hand_ins)) // 2, limit)
    seconds, before = time.monotonic() - begun, final_verdicts(root)
    whole = finish(root, start(root, 2, *more), limit)
    faults = []
    if first.status != 130 or first.rows or not before:
        faults.append(f"the interrupt was not heard: status {first.status}, {len(before)} verdicts")
    if whole.status not in (0, 3) or (whole.status == 0) != all(map(is_settled, whole.rows.values())):
        faults.append(f"status {whole.status}: {whole.printed[-2000:]}")
    after = final_verdicts(root)
    twice = [who for who, mark in before.items() if after.get(who, mark) != mark]
    faults += [f"made twice: {twice}"] if twice else []
    lost = len(set(before) - set(after)) + len(rows) + len(hand_ins) - len(whole.rows)
    faults += [f"{lost} verdicts were lost"] if lost else []
    faults += [f"wrong: {wrong}" for wrong in (wrong_honest(whole, rows), wrong_rows(whole, hand_ins, 2)) if wrong]
    faults += [f"left: {part.left}" for part in (first, whole) if part.left]
    faults += [f"descriptors: {part.descriptors}" for part in (first, whole) if _grown(part) > 2 * workers]
    faults += [f"the class's seed or secret stands in {whole.told}"] if whole.told else []
    faults += ["a traceback"] if "Traceback" in first.printed + whole.printed else []
    return Class(first, whole, seconds, len(before), faults)


def is_settled(row: Row) -> bool:
    """Whether nothing of a hand-in is left to a person: it was graded, and all of it was read."""
    return row[3] and row[1] != "DTL-UNREADABLE"


def final_verdicts(root: Path) -> dict[str, tuple[int, int]]:
    """As `verdicts_on_disk`, without those for which there was no time: they are graded again, on purpose."""
    found = verdicts_on_disk(root)
    texts = {who: (root / "results" / who / "ch01.average.json").read_text() for who in found}
    return {who: mark for who, mark in found.items() if Verdict.from_json(texts[who]).final}


def _grown(part: Graded) -> int:
    """How many descriptors the command has more at the end of a part than at its beginning, at rest."""
    tenth = len(part.descriptors) // 10
    return min(part.descriptors[-tenth:]) - min(part.descriptors[:tenth]) if tenth else 0


def _memory(of: Mapping[str, int], who: Sequence[str]) -> str:
    known = {name: of[name] for name in who if of.get(name)}
    if not known:
        return "unknown"
    most = max(known, key=lambda name: known[name])
    return f"at most {known[most] / MIB:,.0f} MiB ({most}), median {median(known.values()) / MIB:,.0f}, of {len(known)}"


def report(made: Class, hand_ins: Sequence[HandIn]) -> str:
    """The figures, a line each."""
    whole = made.whole
    bad = [one.name for one in hand_ins]
    good = [name for name in whole.rows if name not in set(bad)]
    not_final = [name for name, row in whole.rows.items() if not row[3]]
    lines = [
        f"{len(whole.rows)} students, {len(bad)} of them hostile",
        f"{made.seconds:.0f} s, of them {made.first.seconds:.1f} after the interrupt; {made.kept} final verdicts kept; "
        f"{whole.seconds:.0f} s for the rest",
        f"memory of the process that graded an honest one: {_memory(whole.memory, good)}",
        f"... a hostile one: {_memory(whole.memory, bad)}",
        f"memory of the process that read an honest one: {_memory(whole.reading, good)}",
        f"... a hostile one: {_memory(whole.reading, bad)}",
        f"memory of the command itself: at most {max(p.peak.get('the command', 0) for p in (made.first, whole)):,} MiB",
        f"descriptors of the command: at most {max(whole.descriptors, default=0)}; {_grown(whole)} more at the end",
        f"not final, for want of time: {len(not_final)} {not_final or ''}".rstrip(),
        f"faults: {len(made.faults)}",
        *made.faults,
    ]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--students", type=int, default=200)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--limit", type=float, default=3600, help="seconds for each of the two parts")
    options = parser.parse_args()
    hand_ins = hostile(options.students // 5)
    folder = Path(tempfile.mkdtemp(prefix="class-of-200-"))
    try:
        made = grade_in_two_parts(
            folder / "course", options.students - len(hand_ins), hand_ins, options.workers, options.limit
        )
    finally:
        delete_folder(folder)
    print(report(made, hand_ins))
    return 1 if made.faults else 0


if __name__ == "__main__":
    sys.exit(main())
