"""ch16.interval: rare failures, of which Young's square root tells the best number; then those of which it does not.

Each grading has another unit of time: the best number and its goodput are the same in any unit. `tests/course` plays
the cases with random failures.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from dtlearn.grading import Case, Check, Edit, Finding, Given, rules
from dtlearn.runtime.record.record import Record

from ..sent import no_stores
from . import MAY_HELP

# Per case: `times`, seconds of a step, a save, a restart and between failures; `refused`, tuples of four.
CASES: dict[str, dict[str, Any]] = {
    "rare failures": {"times": (10, 5, 0, 100_000)},
    "frequent failures": {
        "says": "Young's square root holds in the limit of short saves only: a save is a fifth of mtbf here",
        "times": (1, 60, 0, 300),
    },
    "a save of twice mtbf": {
        "says": "a save takes longer than mtbf here: approximations for short saves end, the exact expression does not",
        "times": (1, 200, 0, 100),
    },
    "between one step and two": {
        "says": "the best whole number is not always the one nearest to the best interval: compare its two neighbours",
        "times": (100, 13, 0, 900),
    },
    "a restart": {
        "says": "a restart takes time after each failure, and can fail itself: a factor of exp(restart / mtbf)",
        "times": (10, 30, 400, 1000),
    },
    "a step longer than mtbf": {
        "says": "a step may take longer than mtbf: even then n is 1 at least",
        "times": (500, 20, 30, 300),
    },
    "a long time without failures": {
        "says": "the best n may be of many thousand steps: every n up to mtbf / step can be it",
        "times": (1, 800, 0, 99_000),
    },
    "no times": {
        "says": "step, save and mtbf have to be above 0, and restart 0 or more: expected a ValueError",
        "times": (10, 5, 0, 100_000),
        "refused": [(0, 5, 1, 99), (-1, 5, 1, 99), (10, 0, 1, 99), (10, -5, 1, 99), (10, 5, -1, 99), (10, 5, 1, 0),
                    (10, 5, 1, -99)],
    },
}  # fmt: skip
RETURN, HIGH = "return low, goodput(low)", "math.ceil(mtbf / step)"
STRETCH, PART = "stretch = n * step + save", "return n * step / expected"
RESTART, LOSS = "math.exp(restart / mtbf) * ", "math.expm1(stretch / mtbf)"
YOUNG = "math.sqrt(2 * save * mtbf)"
DALY = f"({YOUNG} * (1 + math.sqrt(save / mtbf / 2) / 3 + save / mtbf / 18) - save if save < 2 * mtbf else mtbf)"
ROOT = """tau, top = 0.0, mtbf
    while top - tau > 1e-9 * mtbf:
        x = (tau + top) / 2 / mtbf
        tau, top = (x * mtbf, top) if 1 - x > math.exp(-x - save / mtbf) else (tau, x * mtbf)
    low = max(1, {}(tau / step))
    return low, goodput(low)"""
BEST = "the goodput is computed by the exact expression, but n is {}"
EDITS = (
    Edit(BEST.format("Young's square root: it holds in the limit of saves that are short against mtbf only"),
         {RETURN: f"low = max(1, round({YOUNG} / step))\n    {RETURN}"}),
    Edit(BEST.format("Daly's approximation: it ends at saves of twice mtbf, and the best n follows from the goodput"),
         {RETURN: f"low = max(1, round({DALY} / step))\n    {RETURN}"}),
    Edit("the best interval is rounded to the nearest whole number of steps: compare the goodput of both neighbours",
         {RETURN: ROOT.format("round")}),
    Edit("the best interval is rounded down to whole steps: compare the goodput of both neighbours",
         {RETURN: ROOT.format("math.floor")}),
    Edit("the best interval is rounded up to whole steps: compare the goodput of both neighbours",
         {RETURN: ROOT.format("math.ceil")}),
    Edit("n is the largest that is tried: goodput rises with n, then falls again", {"low < high": "False",
         RETURN: "low = high\n    " + RETURN}),
    Edit("the search ends at 1000 steps: every n up to mtbf / step can be the best",
         {HIGH: "min(1000, math.ceil(mtbf / step))"}),
    Edit("n is 1: saves take time, too", {"low < high": "False"}),
    Edit("the save is left out of a stretch: it takes time, and a failure can strike during it",
         {STRETCH: "stretch = n * step"}),
    Edit("the save counts as training: goodput is the part of the time that went into steps",
         {PART: "return stretch / expected"}),
    Edit("a failure in the save loses nothing here: the steps before it are not saved until it ends",
         {LOSS: "(math.expm1(n * step / mtbf) + save / mtbf)"}),
    Edit("on average a failure is taken to lose half a stretch, and to strike each stretch once at most: that is the "
         "first order only, as for Young",
         {LOSS: "(stretch / mtbf) * (1 + stretch / mtbf / 2)"}),
    Edit("goodput is taken to be the chance that a stretch passes without a failure, times the part that trains",
         {PART: "return n * step / stretch * math.exp(-stretch / mtbf)"}),
    Edit("the 1 is not subtracted: the bracket is exp(s / mtbf) - 1", {"expm1": "exp"}),
    Edit("the restart is left out", {RESTART: ""}),
    Edit("the restart cannot fail here: a failure strikes during restarts as well, hence exp(restart / mtbf)",
         {RESTART: "(1 + restart / mtbf) * "}),
    Edit("the restart is a part of each stretch here: it comes after failures only",
         {STRETCH: "stretch = n * step + save + restart", RESTART: ""}),
    Edit("the restart is added to each stretch, outside the bracket: it comes after failures only",
         {RESTART: "", LOSS: f"{LOSS} + restart"}),
    Edit("seconds between two saves are returned: expected the number of steps",
         {RETURN: "return round(low * step), goodput(low)"}),
    Edit("a goodput of 1 - goodput is returned: that is the part which is lost",
         {RETURN: "return low, 1 - goodput(low)"}),
    Edit("the expected seconds of a stretch are returned: expected the part of them that went into steps",
         {RETURN: "return low, low * step / goodput(low)"}),
    Edit("n is below 1: nothing is ever trained", {RETURN: f"low = low if step < mtbf else 0\n    {RETURN}"}),
    Edit("a restart below 0 is accepted", {" or restart < 0": ""}),
    Edit("a step of 0 or less is accepted: expected a ValueError", {"min(step, save, mtbf)": "min(save, mtbf)",
         HIGH: "math.ceil(mtbf / max(step, 1e-9))"}),
    Edit("a save of 0 or less is accepted: expected a ValueError", {"min(step, save, mtbf)": "min(step, mtbf)"}),
    Edit("an mtbf of 0 or less is accepted: expected a ValueError",
         {"min(step, save, mtbf)": "min(step, save)", HIGH: "max(1, math.ceil(mtbf / step))",
          RETURN: "return low, 0.0 if mtbf <= 0 else goodput(low)"}),
    Edit("times of 0 are accepted: they have to be above 0",
         {"mtbf) <= 0": "mtbf) < 0", HIGH: "math.ceil(mtbf / max(step, 1e-9))",
          RETURN: "return low, 0.0 if mtbf == 0 else goodput(low)"}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    p = case.params
    unit = 0.5 + 1.5 * torch.rand((), generator=case.generator(), dtype=torch.float64).item()
    own = dict(zip(("step", "save", "restart", "mtbf"), (unit * t for t in p["times"]), strict=True))
    return [{**own, "refused": p.get("refused", [])}] * case.world_size


def on_rank(answer: Any, step: Any, save: Any, restart: Any, mtbf: Any, refused: Any) -> Any:
    from dtlearn.grading.on_rank.tools import refusal

    result = answer(step, save, restart, mtbf)
    if not refused:
        return result
    names = ("step", "save", "restart", "mtbf")
    said = {}
    for times in refused:
        text = refusal(answer, *map(float, times))
        called = ", ".join(f"{name} {time}" for name, time in zip(names, times, strict=True))
        said[called] = "a ValueError" if text.startswith("a ValueError") else text
    return said


def expected(case: Case, given: Given) -> list[Any]:
    """The whole table of n up to 3 mtbf, as one tensor."""
    step, save, restart, mtbf, refused = given[0].values()
    if refused:
        names = ("step", "save", "restart", "mtbf")
        called = (", ".join(f"{n} {t}" for n, t in zip(names, times, strict=True)) for times in refused)
        return [dict.fromkeys(called, "a ValueError")] * case.world_size
    trained = step * torch.arange(1, 2 + int(3 * mtbf / step), dtype=torch.float64)
    # A stretch passes with a chance c, so it fails 1 / c - 1 times before; so does the restart. A failure costs mtbf.
    failures = torch.expm1((trained + save) / mtbf)
    goodput = trained / (failures * mtbf * (1 + math.expm1(restart / mtbf)))
    best = int(goodput.argmax())
    return [[best + 1, goodput[best].item()]] * case.world_size


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    """The number of steps must be an int: 23.0 compares as equal to 23, but range() refuses it."""
    if isinstance(got[0], list) and type(got[0][0]) is not int:
        return Finding("DTL-VALUE-TYPE", f"n is {got[0][0]}: a number of steps is a whole number")
    return None


def why(case: Case, given: Given, record: Record) -> str:
    times = ", ".join(f"{name} = {time:.6g}" for name, time in given[0].items() if name != "refused")
    most = "exp(x) overflows where x is above 709, and no n above mtbf / step is the best one"
    return f"{MAY_HELP}it was called with {times}; {most}"


CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    example=[{"step": 10.0, "save": 60.0, "restart": 60.0, "mtbf": 600.0, "refused": []}],
    verify=verify,
    why=why,
    rules=[rules.most_messages("0")],
    reads=[no_stores],
    rtol=1e-9,
    atol=0.0,
)
