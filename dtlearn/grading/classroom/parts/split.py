"""Which hand-ins of a class are graded in which part."""

from collections.abc import Callable, Sequence

from ..reading.layouts import HandIn


def split(
    hand_ins: Sequence[HandIn], num_parts: int, *, who: Callable[[str], str], older_too: bool
) -> list[list[HandIn]]:
    """The hand-ins of each part: all of a student's in one part, and about as much to grade in each.

    The same in every process, whatever the order of `hand_ins`; a hand-in more may move those of other students.

    Args:
        num_parts: 1 or more. With fewer students than parts, some are empty.
        who: the student of a hand-in's `student`; see `class_rules.Rules.to_grade`.
        older_too: whether all hand-ins of a student are graded, and not the newest alone.
    """
    by_student: dict[str, list[HandIn]] = {}
    for one in sorted(hand_ins, key=lambda one: one.entry):
        by_student.setdefault(who(one.student), []).append(one)
    work = {student: len(several) if older_too else 1 for student, several in by_student.items()}
    parts: list[list[HandIn]] = [[] for _ in range(num_parts)]
    load = [0] * num_parts
    for student in sorted(by_student, key=lambda student: (-work[student], student)):
        least = load.index(min(load))
        parts[least] += by_student[student]
        load[least] += work[student]
    return parts
