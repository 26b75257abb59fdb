"""ch04.may_start: the clocks of a few workers. Every rung has answers of both kinds, so that no constant passes one."""

from __future__ import annotations

import math
from typing import Any

from dtlearn.grading import Case, Check, Edit, Given, rules
from dtlearn.runtime.record.record import Record

from . import MAY_HELP

Clocks = list[int | None]
LEFT = "nobody waits for a worker that has left: its clock, None, is no clock"
# Per case: lists of clocks, each with the bounds that all their workers are asked about.
CASES: dict[str, dict[str, Any]] = {
    "two workers": {
        "says": "a worker may start if it is at most `bound` steps ahead of the slowest",
        "clocks": [([1, 0], [1]), ([2, 0], [1]), ([3, 0], [2, 3]), ([2, 3], [1])],
    },
    "several workers": {
        "says": "the slowest of all workers counts, wherever it stands in the list",
        "clocks": [([4, 3, 1, 3], [1, 2]), ([2, 2, 0, 2], [1]), ([1, 5, 5, 5], [3])],
    },
    "several are the slowest": {
        "says": "several workers may be the slowest: each of them may start",
        "clocks": [([2, 2, 3], [1]), ([1, 3, 1, 1], [1]), ([4, 2, 2, 5], [2])],
    },
    "a bound of 0": {
        "says": "with bound 0 a worker waits until all others have made as many steps as it has",
        "clocks": [([1, 0], [0]), ([1, 1, 1], [0]), ([2, 1, 2], [0])],
    },
    "a bound of infinity": {
        "says": "with bound math.inf no worker waits",
        "clocks": [([1000, 0, 3], [math.inf, 999])],
    },
    "a worker that has left": {
        "says": LEFT,
        "clocks": [([3, None, 2], [1, 0]), ([None, 5, 3], [1, 2]), ([4, 4, None, 2], [1]), ([9, None, 3], [math.inf])],
    },
    "all others have left": {
        "says": "the last worker that trains waits for nobody; where all have left, there is no slowest",
        "clocks": [([None, 7], [0, 2]), ([6, None, None], [1]), ([None, None], [1])],
    },
}
START, GONE, MIN = "clock - slowest <= bound", "return False", "min(c for c in clocks if c is not None)"
NONE, ZERO = "if clock is None:", "a clock of 0 is taken for a worker that has left: only None has (`is None`)"
ACTIVE = "[c for c in clocks if c is not None]"
EDITS = (
    Edit("the gate is off by one: a worker that is exactly `bound` steps ahead may start (<=, not <)",
         {START: "clock - slowest < bound"}),
    Edit("the gate is off by one: a worker that is bound + 1 steps ahead has to wait",
         {START: "clock - slowest <= bound + 1"}),
    Edit("nobody ever waits: is a worker compared with the fastest, or with itself? The slowest counts",
         {MIN: MIN.replace("min", "max")}),
    Edit("a worker waits if it is too far behind the fastest: that one has to wait for it",
         {MIN: MIN.replace("min", "max"), START: "slowest - clock <= bound"}),
    Edit("your gate stops everybody while the fastest is too far ahead: only the asker's own lead counts",
         {START: f"max({ACTIVE}) - slowest <= bound"}),
    Edit("a worker is compared with the mean of the clocks: the slowest counts",
         {MIN: f"sum({ACTIVE}) / len({ACTIVE})"}),
    Edit("a worker is compared with the next one in the list: the slowest of all counts",
         {MIN: "clocks[(worker + 1) % len(clocks)]", START: f"slowest is None or {START}"}),
    Edit("a worker is compared with worker 0: the slowest of all counts",
         {MIN: "clock if clocks[0] is None else clocks[0]"}),
    Edit("the steps by which a worker is ahead of each other one are added up: the slowest alone counts",
         {START: f"sum(max(0, clock - c) for c in {ACTIVE}) <= bound"}),
    Edit("the workers that are behind are counted: the bound is a number of steps",
         {START: f"sum(c < clock for c in {ACTIVE}) <= bound"}),
    Edit("a worker that is behind another one by more than the bound waits as well: only those ahead wait",
         {START: f"all(abs(clock - c) <= bound for c in {ACTIVE})"}),
    Edit("of several slowest workers only the first may start: each of them may",
         {START: "worker == clocks.index(slowest) or 0 < clock - slowest <= bound"}),
    Edit("bound 0 is taken for no bound: then all wait for each other", {START: f"not bound or {START}"}),
    Edit("with bound 0 nobody may start: a worker may that is not ahead of the slowest",
         {START: f"bound > 0 and {START}"}),
    Edit("the slowest worker may always start, all others wait for it: they may be `bound` steps ahead",
         {START: "clock == slowest"}),
    Edit("a worker that has left counts as one with the clock 0: nobody waits for it",
         {MIN: "min(c or 0 for c in clocks)"}),
    Edit(ZERO, {NONE: "if not clock:"}),
    Edit(ZERO, {MIN: "min((c for c in clocks if c), default=0)"}),
    Edit(ZERO, {NONE: "if not clock:", MIN: "min((c for c in clocks if c), default=0)"}),
    Edit("with bound math.inf a worker that has left may start: it starts nothing", {GONE: "return bound == math.inf",
         "from collections.abc import Sequence\n": "import math\nfrom collections.abc import Sequence\n"}),
    Edit("the list `clocks` is changed: it is the server's own, which asks again with it",
         {MIN: "min(clocks)", "    slowest =": f"    clocks[:] = {ACTIVE}\n    slowest ="}),
    Edit("a worker that has left may start: it starts nothing", {GONE: "return True"}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    asked = [(c, w, bound) for c, bounds in case.params["clocks"] for bound in bounds for w in range(len(c))]
    first, *others = [dict(zip(("clocks", "worker", "bound"), one, strict=True)) for one in asked]
    return [{**first, "others": others}] * case.world_size


def on_rank(answer: Any, clocks: Any, worker: int, bound: float, others: Any) -> Any:
    questions = [(clocks, worker, bound), *((o["clocks"], o["worker"], o["bound"]) for o in others)]
    result: dict[str, Any] = {}
    for c, w, b in questions:
        handed = list(c)
        may_it = answer(handed, w, b)
        result[f"clocks {c}, worker {w}, bound {b}"] = may_it if handed == c else f"{may_it}, and clocks is changed"
    return result


def may(clocks: Clocks, worker: int, bound: float) -> bool:
    """Whether no other worker that trains is so far behind that this one has to wait for it."""
    own = clocks[worker]
    return own is not None and not any(c is not None and c + bound < own for c in clocks)


def expected(case: Case, given: Given) -> list[dict[str, bool]]:
    own = given[0]
    questions = [(o["clocks"], o["worker"], o["bound"]) for o in (own, *own["others"])]
    return [{f"clocks {c}, worker {w}, bound {b}": may(c, w, b) for c, w, b in questions}] * case.world_size


def why(case: Case, given: Given, record: Record) -> str:
    return f"{MAY_HELP}{case.says}"


CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    example=[{"clocks": [2, 0, 1], "worker": 0, "bound": 1, "others": []}],
    why=why,
    rules=[rules.most_messages("0")],
)
