"""The rules of a course: due dates, lateness, which hand-in counts, columns; a TOML file, as in docs/instructor.md."""

import math
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from ..report.safe import one_line
from ..report.words import number
from ..verdict import Verdict
from .submissions import Submission

_NEVER = datetime.fromtimestamp(0, UTC)
_KEYS = {"resubmissions", "late", "due", "extensions", "canvas", "nbgrader"}
_LATE = {"per_day": 0.0, "days": math.inf, "grace_minutes": 0.0}
_MOST = 1_000_000


@dataclass(frozen=True)
class Rules:
    """What the file says. Without one nothing is late, and the latest hand-in counts."""

    due: Mapping[str, datetime] = field(default_factory=dict)
    extensions: Mapping[str, Mapping[str, datetime]] = field(default_factory=dict)
    late: Mapping[str, float] = field(default_factory=lambda: dict(_LATE))
    best: bool = False
    canvas: Mapping[str, str] = field(default_factory=dict)
    nbgrader: Mapping[str, str] = field(default_factory=dict)

    def due_of(self, submission: Submission, exercise: str) -> datetime | None:
        """When it was due for this student: the most exact that is said."""
        own = self.extensions.get(submission.student.partition("/")[0], {})
        names = (exercise, exercise.partition(".")[0])
        return next((dates[name] for dates in (own, self.due) for name in names if name in dates), None)

    def penalty(self, submission: Submission, verdict: Verdict) -> tuple[float, tuple[str, ...]]:
        """Points off for lateness, and a note that says so; (0, ()) if it was in time or is worth nothing anyway."""
        due, handed_in = self.due_of(submission, verdict.exercise), submission.handed_in
        if due is None or handed_in is None or handed_in <= due + timedelta(minutes=self.late["grace_minutes"]):
            return 0.0, ()
        too_late = (days := math.ceil((handed_in - due) / timedelta(days=1))) > self.late["days"]
        off = verdict.score if too_late else min(verdict.score, self.late["per_day"] * days * verdict.points)
        when = f"on day {days} after it was due{', which is too late' if too_late else ''}"
        said = f"handed in {when}: {number(off)} of {number(verdict.points)} points off"
        return round(off, 4), (said,) if verdict.score else ()

    def to_grade(self, hand_ins: Sequence[Submission], who: Callable[[str], str]) -> tuple[list[Submission], list[str]]:
        """The newest hand-in of each student, with `best` also the older ones, under names of their own; and what was
        decided, in sentences. `who`: the student of a submission's name."""
        by_student: dict[str, list[Submission]] = {}
        for submission in hand_ins:
            by_student.setdefault(who(submission.student), []).append(submission)
        kept, said = list[Submission](), list[str]()
        for several in by_student.values():
            newest, *older = sorted(several, key=lambda s: (s.handed_in or _NEVER, s.entry), reverse=True)
            kept += [newest, *(replace(s, student=f"{newest.student}/{s.entry}") for s in older if self.best)]
            names = [one_line(s.entry, 80) for s in (newest, *older)]
            how = "also graded, and the best counts" if self.best else "not graded"
            said += [f"hand-ins of one student: {names[0]} is the newest; {how}: {', '.join(names[1:])}"][: len(older)]
        return kept, said


def settle(
    rules: Rules, submissions: Iterable[Submission], verdicts: Mapping[str, Sequence[Verdict]]
) -> tuple[dict[str, list[Verdict]], dict[tuple[str, str], float], dict[str, datetime]]:
    """What counts: by student the verdicts with the most points left, lateness taken off; by student and exercise the
    points that are off; by student the time of the newest hand-in."""
    counts: dict[str, dict[str, Verdict]] = {}
    off: dict[tuple[str, str], float] = {}
    times: dict[str, datetime] = {}
    for submission in submissions:
        student = submission.student.partition("/")[0]
        if submission.handed_in:
            times.setdefault(student, submission.handed_in)  # of the newest, which comes first
        for verdict in verdicts[submission.student]:
            points, said = rules.penalty(submission, verdict)
            left = replace(verdict, score=round(verdict.score - points, 4), notes=(*verdict.notes, *said))
            known = counts.setdefault(student, {}).get(verdict.exercise)
            # One that is not graded yet may be the best: nothing is final before.
            if known is None or (known.final and (not left.final or left.score > known.score)):
                counts[student][verdict.exercise] = left
                off[student, verdict.exercise] = points
    return {student: list(of_student.values()) for student, of_student in counts.items()}, off, times


def read_rules(text: str, exercises: Iterable[str]) -> Rules:
    """Read the file; `exercises`: the ids that it may name. Raises ValueError: what is wrong in it."""
    try:
        data: dict[str, Any] = tomllib.loads(text)
        tables = {name: data.get(name, {}) for name in ("late", "due", "canvas", "nbgrader", "extensions")}
        own = tables["extensions"] if isinstance(tables["extensions"], dict) else {}
        for name, table in {**tables, **{f"extensions.{who}": table for who, table in own.items()}}.items():
            if not isinstance(table, dict):
                raise ValueError(f"{name} is a table: a line [{name}], and below it lines such as NAME = VALUE")
        late, due, *columns, extensions = tables.values()
        ids = {name for e in exercises for name in (e, e.partition(".")[0])}
        names = [name for table in (due, *extensions.values(), *columns) for name in table]
        if unknown := [*(set(data) - _KEYS), *(set(late) - set(_LATE)), *(name for name in names if name not in ids)]:
            raise ValueError(f"{unknown[0]!r} is unknown, or no exercise that is graded")
        dates = [date for table in (due, *extensions.values()) for date in table.values()]
        if any(getattr(date, "tzinfo", None) is None for date in dates):
            raise ValueError("a due date needs time and zone: 2026-11-20T23:59:00+01:00")
        in_bounds = all(type(value) in (int, float) and 0 <= value <= _MOST for value in late.values())
        if data.get("resubmissions", "latest") not in ("latest", "best") or not in_bounds:
            raise ValueError(f'resubmissions is "latest" or "best"; those of [late] are numbers from 0 to {_MOST:,}')
        if wrong := [name for table in columns for name, heading in table.items() if not isinstance(heading, str)]:
            raise ValueError(f'the column of {wrong[0]!r} is a text: "{wrong[0]}" = "The mean (48151)"')
    except ValueError as error:
        raise ValueError(f"the rules: {error}") from error
    return Rules(due, extensions, {**_LATE, **late}, data.get("resubmissions") == "best", *columns)
