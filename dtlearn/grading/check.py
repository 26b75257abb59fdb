"""A check: how one exercise is judged, the same for the package's own version, the solution and the learner's.

It has two halves. `on_rank` runs on the ranks, in the learner's process; only its source text travels there. All
else (inputs, expected values, rules) runs in the judge, which never runs a learner's code:

    def inputs(case):                        # one dict per rank: what `on_rank` gets
        g = case.generator()
        return [{"x": torch.randn(3, generator=g)} for _ in range(case.world_size)]

    def on_rank(answer, x):                  # `answer` is the function or class under test
        return answer(x)

    def expected(case, given):               # what each rank should return
        total = sum(i["x"] for i in given)
        return [total / case.world_size] * case.world_size

    CHECK = Check(on_rank, inputs, expected, cases={"small": {}})

The cases are a ladder. The first is plain, and each other one adds one difficulty: its name says which. So the first
case that is wrong names the mistake, whatever the answer does. What a plain case cannot tell apart are *edits*: what
people change in the worked solution. See `judging/ladder.py`.
"""

from __future__ import annotations

import inspect
import textwrap
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from ..runtime.record.record import Record

Given = list[dict[str, Any]]


@dataclass(frozen=True)
class Case:
    """One situation that an answer is tried in."""

    name: str  # for the report: "uneven parts"
    world_size: int  # number of ranks
    seed: int  # of this grading; the same seed gives the same inputs
    params: Mapping[str, Any] = field(default_factory=dict)  # what the check's table says of this case

    @property
    def says(self) -> str:
        """What is wrong with an answer that is right in all earlier cases and not in this one; "": the values tell."""
        return str(self.params.get("says", ""))

    def generator(self, salt: int = 0) -> torch.Generator:
        """Random numbers of this case; other ones for another case, world size or `salt`."""
        key = f"{self.name}/{self.world_size}/{self.seed}/{salt}"
        return torch.Generator().manual_seed(zlib.crc32(key.encode()))


@dataclass(frozen=True)
class Finding:
    """What is wrong, with its name."""

    code: str  # stable, such as "DTL-VALUE-FACTOR"
    text: str  # one sentence for the learner; details in further lines
    rank: int | None = None  # the rank that shows it, if it is one
    line: int | None = None  # in the learner's file, if known
    advice: str = ""  # what to look for; "" if the text says it all


@dataclass(frozen=True)
class Edit:
    """A mistake that people make, as a change of the worked solution.

    Attributes:
        says: the mistake, as a sentence for the learner.
        changes: where the solution has the keys, each once, these people write the values.
    """

    says: str
    changes: Mapping[str, str]

    def applied_to(self, solution: str) -> str:
        """The wrong answer.

        Raises:
            ValueError: the solution has one of the texts not exactly once.
        """
        for old, new in self.changes.items():
            if (times := solution.count(old)) != 1:
                raise ValueError(f"{self.says!r}: the solution has {old!r} {times} times, and should have it once")
            solution = solution.replace(old, new)
        return solution


@dataclass(frozen=True)
class Mistake:
    """A wrong answer that people really give, with the values that it leads to."""

    code: str
    text: str
    values: Sequence[Any]  # by rank


# Judges what the ranks communicated; None if all is well.
Rule = Callable[[Case, Given, "Record"], Finding | None]
# Judges what they returned, by rank, where no expected value can say it: times, orders, random numbers. The record
# may help to say why.
Verify = Callable[[Case, Given, list[Any], "Record"], Finding | None]


@dataclass(frozen=True)
class Stress:
    """Harder circumstances for code that must not depend on timing.

    Attributes:
        poison: a tensor that an asynchronous call fills holds NaN until `wait()`, that of `torch.empty` until it is
            written, and one that an isend sends must not change until `wait()`.
        delays: seconds; every communication call is held up by a random time up to this.
    """

    poison: bool = False
    delays: float = 0.0


@dataclass(frozen=True)
class Check:
    """How an exercise is judged. See the head of this file.

    Attributes:
        on_rank: `on_rank(answer, **inputs)`, a `def` of its own; only its text travels. It may use `torch`, `dist`,
            `rank`, `world_size` and what it imports itself. Its own calls are not counted as the answer's.
        inputs: `inputs(case)`: one dict per rank; give ranks different data.
        expected: `expected(case, given)`: what each rank should return, by rank; None if only `verify` can tell.
        cases: `{name: params}`, in the order of difficulty; see `Case.says`. With `sizes=(2, 4)` among its params a
            case is run at these world sizes only.
        edits: wrong answers to recognise by their values, as changes of the solution.
        edits_at_once: how many edits are one task of the ranks; None: all. What a task makes stays until it ends: of
            groups, each has three threads on each of its ranks.
        solution: the file of the worked solution; the grader fills it in.
        example: the inputs of the task's own Example, by rank; `dtlearn try` runs it. (): the first case.
        verify: judges the returned values, after they were compared with the expected ones; see `Verify`.
        rules: judge the recorded communication, at last.
        mistakes: `mistakes(case, given)`: wrong answers to recognise by their values.
        factors: `factors(case)`: numbers that a wrong answer may be off by, with their names; the world size is
            always among them.
        payload: `payload(case, given)`: n in the budget formulas of the manifest, in bytes.
        why: `why(case, given, record)`: what the exercise knows of a run that raised, or whose calls do not fit
            together, from the record up to there; a clause for the headline, or "".
        task_text: `task_text(case, given, rank)`: what that rank was given, in a few words, for the report; where each
            rank has another task of its own, and nothing is sent, the number of a rank says nothing.
        calls: `calls(case)`: how often `on_rank` calls the answer; budgets are for one call. None: once.
        rtol, atol: relative and absolute tolerance of floating-point values.
        may_change_inputs: the answer works in place.
        reads: rules on the answer's text, judged before it runs; `READS` of a chapter's package is added to them.
        memory: `memory(case, given)`: bytes of new tensors that a rank may hold at once while it works; None: it is not
            measured. The manifest's budget "peak_bytes" needs it.
        bubble: `bubble(case, given, got)`: of a right answer, what the manifest's budget "bubble" is compared with.
        stress: see `Stress`.
        hold: `hold(case, rank, k)`: seconds after which the k-th `rank.task.mark` of `on_rank` returns; None: at once.
        seconds: for one run; more is a time-out.
    """

    on_rank: Callable[..., Any]
    inputs: Callable[[Case], Given]
    expected: Callable[[Case, Given], Sequence[Any]] | None
    cases: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: {"one case": {}})
    edits: Sequence[Edit] = ()
    edits_at_once: int | None = None
    solution: Path | None = None
    example: Sequence[dict[str, Any]] = ()
    verify: Verify | None = None
    rules: Sequence[Rule] = ()
    mistakes: Callable[[Case, Given], Sequence[Mistake]] | None = None
    factors: Callable[[Case], Mapping[float, str]] | None = None
    payload: Callable[[Case, Given], int] | None = None
    why: Callable[[Case, Given, Record], str] | None = None
    task_text: Callable[[Case, Given, int], str] | None = None
    calls: Callable[[Case], int] | None = None
    rtol: float = 1e-5
    atol: float = 1e-6
    may_change_inputs: bool = False
    reads: Sequence[Callable[[str], Finding | None]] = ()
    memory: Callable[[Case, Given], float] | None = None
    bubble: Callable[[Case, Given, list[Any]], float] | None = None
    stress: Stress = Stress()
    hold: Callable[[Case, int, int], float] | None = None
    seconds: float = 10.0

    def __post_init__(self) -> None:
        if self.expected is None and self.verify is None:
            raise ValueError("a check needs expected or verify: without both, every answer would pass")

    @property
    def is_ladder(self) -> bool:
        """Whether its cases or edits name mistakes; see `judging/ladder.py`."""
        return self.expected is not None and bool(self.edits or any("says" in p for p in self.cases.values()))

    def driver(self) -> str:
        """The text of `on_rank`, as it travels to the ranks."""
        return textwrap.dedent(inspect.getsource(self.on_rank))

    def all_cases(self, world_size: int, seed: int) -> list[Case]:
        cases = (Case(name, world_size, seed, params) for name, params in self.cases.items())
        return [case for case in cases if world_size in case.params.get("sizes", (world_size,))]
