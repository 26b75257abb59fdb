"""The verdicts of a whole class from the folders of its parts; nothing is graded."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ....course import Exercise
from ...report.safe import one_line
from ...verdict import Verdict
from ..reading.layouts import HandIn
from ..store import ResultStore
from ..submissions import Submission
from .record import check_whole, read_part


def stores_of_parts(
    folders: Sequence[Path],
    how: Mapping[str, str],
    shares: Callable[[int], Sequence[Sequence[HandIn]]],
    who: Callable[[str], str],
) -> dict[str, ResultStore]:
    """Where the verdicts of each student are.

    Args:
        folders: of the parts.
        how: see `record.check_whole`.
        shares: `split` of this class into so many parts.
        who: the student of a hand-in's `student`.

    Raises:
        ValueError: these are not all parts of this class, graded alike.
    """
    parts = [read_part(folder) for folder in folders]
    of_parts = shares(parts[0].of)
    check_whole(parts, how, of_parts)
    return {
        who(one.student): ResultStore(part.folder, keep=True) for part in parts for one in of_parts[part.number - 1]
    }


def merge(
    exercises: Sequence[Exercise],
    submissions: Sequence[Submission],
    stores: Mapping[str, ResultStore],
    who: Callable[[str], str],
    store: ResultStore,
) -> dict[str, list[Verdict]]:
    """What `grade_class` returns of the whole class; as there, the verdicts are in `store`, too.

    Raises:
        ValueError: an answer has no verdict, as it came, or changed, after its part was graded.
    """
    verdicts: dict[str, list[Verdict]] = {}
    for submission in submissions:
        of_student = verdicts[submission.student] = []
        for exercise in exercises:
            source = submission.answers.get(exercise.id)
            if source is None:
                of_student.append(submission.without_answer(exercise))
                continue
            part = stores[who(submission.student.partition("/")[0])]
            verdict = part.load(submission.student, exercise.id, source)
            if verdict is None:
                raise ValueError(
                    f"{part.folder} has no verdict on what {one_line(submission.student, 80)} hands in for "
                    f"{exercise.id}: that came, or was changed, after the part was graded. Run the part's command again"
                )
            store.save(submission.student, verdict, source)
            of_student.append(verdict)
    return verdicts
