"""Which students' answers share text that neither the stub, the course's solution nor many of the class have."""

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import combinations

from ...course import Course, Exercise
from ..learner.exercise_files import files_of
from .gradebook import CsvCell
from .reading.fingerprints import fingerprints
from .submissions import Submission

HEADER = ("exercise", "student", "other", "share", "fingerprints")
FEWEST = 8  # fingerprints of an answer's own, below which nothing can be said
COPIED = 0.5  # share of the shorter one's own fingerprints from which a pair is reported
_COMMON = 0.2  # what a larger share of the class has is the exercise's way, and nobody's own
_MOST = 100  # pairs of one exercise
SimilarPair = tuple[str, str, float, int]  # two students; share of the shorter answer's own fingerprints; how many


def similar(prints: Mapping[str, frozenset[int]], known: Iterable[frozenset[int]]) -> list[SimilarPair]:
    """Pairs of students whose answers share more than the exercise explains, the most alike first.
    `prints`: by student. `known`: those of the stub and the solution."""
    seen = Counter(print_ for mine in prints.values() for print_ in mine)
    common = {print_ for print_, n in seen.items() if n > max(4, _COMMON * len(prints))}.union(*known)
    own = {who: mine - common for who, mine in prints.items() if len(mine - common) >= FEWEST}
    pairs = []
    for (who, mine), (other, theirs) in combinations(sorted(own.items()), 2):
        both, shorter = len(mine & theirs), min(len(mine), len(theirs))
        if both >= COPIED * shorter:
            pairs.append((who, other, round(both / shorter, 2), both))
    return sorted(pairs, key=lambda pair: (-pair[2], -pair[3], pair))[:_MOST]


def alike_in_class(
    course: Course, exercises: Iterable[Exercise], submissions: Iterable[Submission]
) -> list[list[CsvCell]]:
    """The rows of `similarity.csv`: pairs by exercise; all hand-ins of a student are one."""
    prints: dict[str, dict[str, frozenset[int]]] = {}
    for submission in submissions:
        student = submission.student.partition("/")[0]
        for name, numbers in submission.prints.items():
            of = prints.setdefault(name, {})
            of[student] = of.get(student, frozenset()) | numbers
    rows: list[list[CsvCell]] = []
    for exercise in exercises:
        files = files_of(course, exercise)
        known = [fingerprints(p.read_text("utf-8")) for p in (files.stub, files.solution) if p.is_file()]
        rows += [[exercise.id, *pair] for pair in similar(prints.get(exercise.id, {}), known)]
    return rows
