"""ch11.memory_cap: the puzzles of the task; what comes back is checked, and its bubble is the budget of the tiers."""

from __future__ import annotations

from typing import Any

from dtlearn.grading import Case, Check, Finding, Given, rules
from dtlearn.runtime.record.record import Record

from . import MAY_HELP
from ._schedules import Orders, as_tuples, is_orders, peaks, play, problem, text_of

Job = dict[str, int]
# The smallest T known: of a beam search in C++ over all placements with two stages on each rank, 6,000 states a step.
# Those of p = 2 are the smallest there are: no state was left out. The mean bubble is 0.1053. Ranks that do the best
# that they can, with a V, reach 0.203 ("good" is 0.21). Of 1000 random priorities for each of the two placements of the
# solution, the best reach 0.119 ("optimal" is 0.125); of 300 with a V alone, 0.152.
BEST_KNOWN = 26, 38, 41, 39, 56, 53
_PUZZLES = ((2, 4, 3), (2, 6, 3), (3, 6, 4), (3, 6, 5), (4, 8, 5), (4, 8, 6))  # p, m, cap


def inputs(case: Case) -> Given:
    jobs = [{"num_ranks": p, "num_microbatches": m, "cap": cap} for p, m, cap in _PUZZLES]
    return [{"jobs": jobs}] * case.world_size


def on_rank(answer: Any, jobs: Any) -> Any:
    import contextlib

    from dtlearn.grading.on_rank.processor_limit import Endless, ProcessorLimit

    pairs: Any = []
    with contextlib.suppress(Endless), ProcessorLimit(8.0):  # seconds for all puzzles: an answer may search
        for job in jobs:
            pairs.append(answer(job["num_ranks"], job["num_microbatches"], job["cap"]))
    return pairs


def _told(job: Job) -> str:
    return f"p = {job['num_ranks']}, m = {job['num_microbatches']}, cap = {job['cap']}"


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    for job, pair in zip(given[0]["jobs"], got[0], strict=False):  # fewer if time was over
        if found := _form(job, pair) or _valid(job, pair[0], as_tuples(pair[1])):
            return Finding(f"DTL-VALUE-{found[0]}", f"{_told(job)}: {found[1]}")
    if len(got[0]) < len(given[0]["jobs"]):
        text = f"{_told(given[0]['jobs'][len(got[0])])}: no end after 8 s of processor time for all puzzles together. "
        text += "Perhaps your loop plays, and nobody can go on: ranks are full, and what frees an activation needs room"
        return Finding("DTL-LOOP", text)
    return None


def _form(job: Job, pair: Any) -> tuple[str, str] | None:
    p = job["num_ranks"]
    if pair is None:
        return "NONE", "None is returned, and a pair (placement, orders) is asked. Is a `return` missing?"
    if not isinstance(pair, list) or len(pair) != 2:
        is_what = f"a list of {len(pair)}" if isinstance(pair, list) else type(pair).__name__
        return "TYPE", f"a pair (placement, orders) is asked; this is {is_what}"
    placement, orders = pair
    if not isinstance(placement, list) or len(placement) != 2 * p:
        count = f"has {len(placement)} entries" if isinstance(placement, list) else f"is {type(placement).__name__}"
        return "PLACEMENT", f"placement {count}: it has the rank of each of the 2p = {2 * p} stages"
    if wrong := [rank for rank in placement if type(rank) is not int or not 0 <= rank < p]:
        return "PLACEMENT", f"placement has {wrong[0]!r}: the ranks are 0 to {p - 1}"
    why = is_orders(orders, p)
    return ("TYPE", why) if why else None


def _valid(job: Job, placement: list[int], orders: Orders) -> tuple[str, str] | None:
    m, cap = job["num_microbatches"], job["cap"]
    if whole := next((a for order in orders for a in order if a[1] == "B"), None):
        return "NOT-SPLIT", f"{text_of(whole)} is a whole backward pass: here each is an I and a W"
    if found := problem(orders, placement, "FIW", m):
        return found[0].removeprefix("DTL-VALUE-"), found[1]
    for rank, peak in enumerate(peaks(orders)):
        if peak > cap:
            text = f"rank {rank} holds up to {peak} activations, and {cap} are allowed"
            if all(most <= cap for most in peaks(orders, "I")):
                text += ". They would fit if an I freed its activation: it is live until the W"
            elif all(most <= cap for stage in range(len(placement)) for most in peaks(_only(orders, stage))):
                text += ". Each of its stages by itself keeps to that: the cap is for all stages of a rank together"
            return "TOO-MANY-LIVE", text
    return None


def _only(orders: Orders, stage: int) -> Orders:
    return [[a for a in order if a[0] == stage] for order in orders]


def bubble(case: Case, given: Given, got: list[Any]) -> float:
    """The mean bubble of all puzzles, idle time by useful time."""
    found = []
    for job, (placement, orders) in zip(given[0]["jobs"], got[0], strict=True):
        makespan = play(as_tuples(orders), placement, lambda action: 1).makespan
        found.append(makespan / (6 * job["num_microbatches"]) - 1)
    return float(round(sum(found) / len(found), 4))


def why(case: Case, given: Given, record: Record) -> str:
    """Of a run that raised: what is special in it."""
    return f"{MAY_HELP}a cap may be odd, and smaller than what two chunks of p micro-batches need"


CHECK = Check(
    on_rank, inputs, None, verify=verify, why=why, bubble=bubble, rules=[rules.most_messages("0")], seconds=20.0
)
