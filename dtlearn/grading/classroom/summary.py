"""A class at a glance: which faults how many made, how the scores lie, and which submissions need a person."""

import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median

from ...runtime.words import counted
from ..report import words
from ..report.codes import meaning
from ..report.console import WIDTH
from ..report.learner_view import learner_view
from ..report.safe import one_line
from ..verdict import Verdict
from .gradebook import Class

BANDS = ("0", "below 25 %", "25 to 50 %", "50 to 75 %", "75 to 99 %", "all")  # of the points
_BAR = 30  # columns


@dataclass(frozen=True)
class ExerciseSummary:
    """One exercise over the class."""

    exercise: str
    title: str
    # submissions, passed: how many
    submissions: int
    passed: int
    # codes: `(code, how many submissions it is the first fault of, its meaning, what its verdicts say most often)`, the
    # most frequent first
    codes: tuple[tuple[str, int, str, str], ...]
    bands: tuple[int, ...]  # submissions by share of the points, as in `BANDS`; without those that need a person
    # mean, median: of these scores
    mean: float
    median: float
    points: float  # that can be reached
    tiers: tuple[tuple[str, int], ...]  # `(tier, how many)` of those that passed
    answers: int = 0  # that were read

    @property
    def facts(self) -> str:
        """How many passed, and the scores, in a line."""
        tiers = ", ".join(f"{n} {tier}" for tier, n in self.tiers)
        mean, median, points = map(words.number, (self.mean, self.median, self.points))
        passed = f"{self.passed} of {self.submissions} passed{f' ({tiers})' if tiers else ''}"
        return f"{passed}; mean {mean}, median {median} of {points}"


@dataclass(frozen=True)
class ClassSummary:
    """The class. `needs_a_person`: `(submission, exercise, what happened)` where nothing final was graded. `accounts`:
    what else is to be said of what was handed in, a line each."""

    submissions: int
    exercises: tuple[ExerciseSummary, ...]
    needs_a_person: tuple[tuple[str, str, str], ...]
    accounts: tuple[str, ...] = ()

    @property
    def not_graded(self) -> str:
        """The heading of these."""
        again = "the same command grades them again; where time ran out, with more --seconds"
        return f"Not graded: {len(self.needs_a_person)}, with empty cells; {again}"

    @property
    def size(self) -> str:
        return f"{counted(self.submissions, 'submission')}, {counted(len(self.exercises), 'exercise')}"


def summarise(verdicts: Class, *, meanings: Mapping[str, str]) -> ClassSummary:
    """Count. For teachers: hidden cases are told in full. `meanings`: of codes that only single chapters use."""
    by_exercise: dict[str, list[Verdict]] = {}
    people = []
    for submission, of_submission in verdicts.items():
        for verdict in (learner_view(v, "full") for v in of_submission):
            by_exercise.setdefault(verdict.exercise, []).append(verdict)
            if not verdict.final:
                fault = next((r for r in verdict.results if r.state == verdict.state), None)
                people.append((one_line(submission), verdict.exercise, fault.headline if fault else "no case was run"))
    exercises = tuple(_exercise(of_exercise, meanings) for of_exercise in by_exercise.values())
    return ClassSummary(len(verdicts), exercises, tuple(people))


def summary_console(summary: ClassSummary) -> str:
    """The summary for the terminal: a part for each exercise to which somebody handed in an answer."""
    parts = [summary.size, *(_exercise_text(part) for part in summary.exercises if part.answers)]
    if nobodys := [part.exercise for part in summary.exercises if not part.answers]:
        parts.append(_hanging(f"No answer was read to {counted(len(nobodys), 'exercise')}: {', '.join(nobodys)}"))
    if summary.needs_a_person:
        rows = ["  " + "  ".join(row) for row in summary.needs_a_person]
        parts.append("\n".join(map(_hanging, [f"{summary.not_graded}:", *rows])))
    parts += ["What was handed in:\n" + "\n".join(map(_hanging, summary.accounts))] if summary.accounts else []
    return "\n\n".join(parts) + "\n"


def _hanging(text: str, indent: str = "") -> str:
    return textwrap.fill(
        text, WIDTH, initial_indent=indent, subsequent_indent=f"{indent}      ", break_on_hyphens=False
    )


def _exercise(results: Sequence[Verdict], meanings: Mapping[str, str]) -> ExerciseSummary:
    codes = Counter(v.code for v in results if v.code and v.final)
    said = {c: Counter(v.first_fault.headline for v in results if v.code == c and v.first_fault) for c in codes}
    most_first = sorted(codes.items(), key=lambda item: (-item[1], item[0]))
    graded = [v for v in results if v.final]
    scores = [v.score for v in graded] or [0.0]
    bands = Counter(_band(v) for v in graded)
    tiers = Counter(v.tier for v in results if v.passed and v.tier)
    return ExerciseSummary(
        results[0].exercise,
        results[0].title,
        len(results),
        sum(v.passed for v in results),
        tuple((c, n, meaning(c, meanings), one_line(said[c].most_common(1)[0][0])) for c, n in most_first),
        tuple(bands[k] for k in range(len(BANDS))),
        mean(scores),
        median(scores),
        results[0].points,
        tuple((tier, tiers[tier]) for tier in ("correct", "good", "optimal") if tiers[tier]),
        sum(v.code not in ("DTL-MISSING", "DTL-UNREADABLE") for v in results),
    )


def _band(verdict: Verdict) -> int:
    share = verdict.score / verdict.points if verdict.points else float(verdict.passed)
    return 0 if share <= 0 else 5 if share >= 1 else 1 + int(share * 4)


def _exercise_text(part: ExerciseSummary) -> str:
    lines = [f"{part.exercise}  {part.title}"[:WIDTH], f"  {part.facts}", ""]
    most = max(*part.bands, 1)
    for name, n in zip(BANDS, part.bands, strict=True):
        bar = "#" * -(-n * _BAR // most)
        lines.append(f"  {name:>10}  {n:>4}  {bar}".rstrip())
    if part.codes:
        lines.append("")
        wide = max(len(code) for code, *_ in part.codes)
        for code, n, words_, said in part.codes:
            lines.append(f"  {n:>4} of {part.submissions}  {code:<{wide}}  {words_}")
            lines += [_hanging(f'"{said}"', "       ")] if said and n > 1 else []
    return "\n".join(lines)
