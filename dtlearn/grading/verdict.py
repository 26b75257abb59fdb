"""What grading found, as data. Every report (console, notebook, JUnit, gradebooks) is drawn from it.

The JSON form has a version; `tests/grading/report/verdict-1.json`, a JSON Schema, describes it.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Self, get_args

FORMAT = 1
LEFT_OUT = ("DTL-LOAD", "DTL-SKIPPED-TIME")  # codes of cases that could have been judged

# These say what was seen; where another case of the same answer tells what was done, that comes first.
_VALUES = ("DTL-VALUE", "DTL-VALUE-SHAPE", "DTL-VALUE-NOT-NEW", "DTL-VALUE-NOT-IN-PLACE", "DTL-VALUE-STOP")
_VAGUE = frozenset({*_VALUES, "DTL-WS", "DTL-RAISED"})

# "error" is the grader's own: it is never a pass and never a fail; a person has to look.
Outcome = Literal["passed", "failed", "timeout", "crashed", "not-attempted", "skipped", "error"]


@dataclass(frozen=True)
class Result:
    """One case at one world size."""

    case: str  # its name
    world_size: int  # number of ranks
    state: Outcome
    code: str = ""  # stable name of what is wrong, such as "DTL-VALUE-FACTOR"; "" if passed
    headline: str = ""  # one sentence
    details: tuple[str, ...] = ()  # further lines: a table of calls, a traceback, differences
    advice: str = ""  # one hint
    # rank, line: where it shows, if known
    rank: int | None = None
    line: int | None = None
    seconds: float = 0.0  # wall time
    # bytes, messages: most bytes and most calls of any rank, as recorded, for one call of the answer; None: nothing was
    bytes: int | None = None
    messages: int | None = None
    peak_bytes: int | None = None  # most bytes of new tensors that any rank held at once; None if it was not measured
    bubble: float | None = None  # idle time by useful time of the schedule that was returned; None if none was
    hidden: bool = False  # the learner sees less of it (`report.learner_view`)

    @property
    def is_specific(self) -> bool:
        """Whether its code names a mistake. One rank alone has nobody to talk to: its messages are a symptom."""
        return self.code not in _VAGUE and not (self.world_size == 1 and self.code.startswith("DTL-P2P"))


def first_fault(results: Iterable[Result]) -> Result | None:
    """The result that says what to mend first: the first that names a mistake, or else the first; None: all is well.

    Where values are right and a rule on calls is broken, a mistake that another case shows comes first: it says why.
    """
    faults = [r for r in results if r.state not in ("passed", "skipped")]
    named = [r for r in faults if r.is_specific] or faults
    if named and named[0].code == "DTL-RULE-CALLS":
        return next((r for r in named if r.code == "DTL-MISTAKE"), named[0])
    return named[0] if named else None


@dataclass(frozen=True)
class Verdict:
    """The outcome of grading one exercise."""

    exercise: str  # its id
    title: str  # for people
    # state: passed if every case passed; error if the grader itself failed; skipped if some cases were not run and the
    # others passed; otherwise that of `first_fault`
    state: Outcome
    # score, points: reached and possible
    score: float
    points: float
    tier: str = ""  # "" (not correct), "correct", "good" or "optimal": how the answer does against its budgets
    results: tuple[Result, ...] = ()  # by case and world size
    seconds: float = 0.0  # wall time
    seed: int = 0  # repeat with it to get the same inputs
    attempt: int = 0  # number of this attempt, from 1; 0 if attempts are not kept
    isolation: str = ""  # of the runs, in words
    versions: dict[str, str] = field(default_factory=dict)  # of python, torch and dtlearn
    notes: tuple[str, ...] = ()  # for people: budgets that were missed, output that was cut, and the like
    # withheld: cases that count and that the reader is not told of yet. The results then lack them, the state speaks of
    # the other cases alone, and score and tier are left out (0 and "").
    withheld: int = 0
    memory: int = 0  # most bytes that the grading process held, beyond those it was forked with; 0 if not known

    @property
    def passed(self) -> bool:
        return self.state == "passed"

    @property
    def final(self) -> bool:
        """Whether its score may stand: what was not graded, or not whole, has an empty cell in every table."""
        codes = {r.code for r in self.results}
        return self.state not in ("error", "skipped") and codes.isdisjoint(LEFT_OUT)

    @property
    def first_fault(self) -> Result | None:
        """The result that says what to mend first."""
        return first_fault(self.results)

    @property
    def code(self) -> str:
        return self.first_fault.code if self.first_fault else ""

    def to_json(self) -> str:
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote. Raises ValueError for anything else."""
        try:
            data: dict[str, Any] = json.loads(text)
            if data.pop("format") != FORMAT:
                raise ValueError(f"this version reads format {FORMAT}")
            results = tuple(Result(**{**r, "details": tuple(r["details"])}) for r in data.pop("results"))
            verdict = cls(**{**data, "notes": tuple(data["notes"])}, results=results)
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"this is no verdict: {error}") from error
        if not {verdict.state, *(r.state for r in results)} <= set(get_args(Outcome)):
            raise ValueError("this is no verdict: an unknown state")
        return verdict
