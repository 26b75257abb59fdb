"""ch16.find_straggler: tables of a small cluster, first with a slow rank alone, then with all that looks like one.

The tables are made from what each rank needs: an all-reduce ends for all when the last has arrived. Who is slow, in
which phase and since when is known from the making; the cost is read from the table by sorting its arrivals.
"""

from __future__ import annotations

from typing import Any

import torch

from dtlearn.grading import Case, Check, Edit, Finding, Given, rules
from dtlearn.runtime.record.record import Record

from ..sent import no_stores
from . import MAY_HELP

STEPS = 24  # or up to three more
TRANSFER, NOISE = 0.010, 0.015  # these and all other times are for a machine that is two to three times as fast
PHASES = ("data", "computation", "communication")
BASE = {"data": 0.020, "computation": 0.100, "communication": TRANSFER}
# Per case: `slow`, the phase in which somebody is slow, by 60 ms, in the `last` steps of the table; `ranks`; and
# `extra`, what else happens, of ranks that are numbered from the slow one (None: of all), as (rank, phase, first, last,
# ms); steps below 0 are counted from the end.
CASES: dict[str, dict[str, Any]] = {
    "a slow rank": {"slow": "computation"},
    "a slow rank, waiting for data": {
        "says": "the phase is the one in which the rank exceeds the others, not the one that takes it longest",
        **{"slow": "data"},
    },
    "slow from some step on": {
        "says": "all of the result is of the steps since the rank is slow, and nothing of the whole table",
        **{"slow": "computation", "last": 9, "extra": [(0, "data", 0, -11, 10)]},
    },
    "late once before": {
        "says": "a rank that is late once, and in time again, is not slow yet",
        **{"slow": "computation", "last": 10, "extra": [(0, "computation", 3, 3, 70)]},
    },
    "another rank is late at the end": {
        "says": "if another rank is late in one step, also in the last one, the slow one is slow: 90% are enough",
        **{"slow": "computation", "last": 19, "extra": [(2, "data", -1, -1, 130)]},
    },
    "late in nine of ten": {
        "says": "late in 9 of 10 steps is late in 90% of them, which is enough",
        **{"slow": "computation", "last": 10, "extra": [(2, "data", -4, -4, 130)]},
    },
    "late in eight of ten": {
        "says": "late in 8 of 10 steps is not enough. In the last 5 it is late in all, and 5 are enough",
        **{"slow": "computation", "last": 5},
        "extra": [(0, "computation", -10, -9, 60), (0, "computation", -7, -7, 60)],
    },
    "very late once": {
        "says": "one step that took very long says little of the others: medians, not means",
        **{"slow": "computation", "last": 17, "extra": [(0, "data", -6, -6, 1500)]},
    },
    "slow in one phase, fast in the other": {
        "says": "a rank that takes long in one phase and arrives in time holds up nobody",
        **{"slow": "computation", "last": 18, "extra": [(2, "data", 0, -1, 85), (2, "computation", 0, -1, -90)]},
    },
    "a rank unlike all others": {
        "says": "a phase is compared with the median of all ranks: one rank that is unlike all others moves their mean",
        **{"slow": "data", "last": 11, "ranks": 5},
        "extra": [(None, "computation", 0, -1, 150), (2, "data", 0, -1, 200), (2, "computation", 0, -1, -205)],
    },
    "two ranks": {
        "says": "there are 2 ranks or more, and the last of all others may be the only other one",
        **{"slow": "data", "last": 12, "ranks": 2, "extra": [(0, "computation", 0, -1, -12)]},
    },
    "a second rank is a little slow": {
        "says": "without the slow rank, all would wait for the second last: the cost is what comes on top of it",
        **{"slow": "computation", "last": 15, "extra": [(1, "computation", 0, -1, 30)]},
    },
    "a slow rank that recovered": {
        "says": "a rank that was slow and recovered is slow no more: who is slow to the end?",
        **{"slow": "computation", "last": 8, "extra": [(1, "data", 0, -12, 60)]},
    },
    "a slow network": {
        "says": "if even the rank that arrives last is long in the all-reduce, it is the network, and the table cannot "
        "tell which rank's link: rank is None, phase is communication",
        **{"slow": "communication", "last": 16},
        "extra": [(rank, "computation", 0, -1, 12) for rank in (1, 2, 3)],
    },
    "nobody is slow": {"says": "a difference of no more than noise says nothing: the result is None",
        "extra": [(1, "computation", 0, -1, 10)]},
    "late at the end": {
        "says": "fewer than five steps are too few to call a rank slow: the result is None",
        **{"extra": [(3, "computation", -4, -1, 60)]},
    },
}  # fmt: skip
LATE = "arrival[rank] - others.amax(dim=0)"
NETWORK, ENOUGH = 'seconds["communication"].amin(dim=0) - transfer', "is_late[since:].double().mean() < 0.9"
MORE, MOST = "seconds[p][rank] - seconds[p].median(dim=0).values", "max(more, key=lambda p: more[p][since:].median())"
SKIP, LAST = f"if not is_late[since] or {ENOUGH}:", "range(len(length) - 4)"
LOST, SHARE = "lateness[since:].median().item()", "lost / length[since:].median().item()"
RETURN = 'return {"rank": rank, "phase": phase,'
LEAST = 'rank = int(seconds["communication"].mean(dim=1).argmin()) if rank is None else rank\n            '
WAITS = 'rank = int(seconds["communication"][:, since:].median(dim=1).values.argmax())\n            '
EDITS = (
    Edit("the rank that waits longest is taken for the slow one: it waits for another, which is the one to find",
         {RETURN: WAITS + RETURN}),
    Edit("the rank with the longest communication is taken, and its network: it waits there for another rank",
         {RETURN: WAITS + 'phase = "communication"\n            ' + RETURN}),
    Edit("the phase is the one in which the slow rank spends most time: compare it with the other ranks",
         {MORE: "seconds[p][rank]"}),
    Edit("the phase is named the wrong way round", {MOST: MOST.replace("max", "min")}),
    Edit("the phase is found over the whole table: of the steps since the rank is slow",
         {MOST: MOST.replace("[since:]", "")}),
    Edit("the cost is the median over the whole table: of the steps since the rank is slow",
         {LOST: "lateness.median().item()"}),
    Edit("the share is that of a median step of the whole table: of the steps since the rank is slow",
         {SHARE: "lost / length.median().item()"}),
    Edit("the share is of a step as long as it would be without the slow rank: of the step as it is",
         {SHARE: "lost / (length[since:].median().item() - lost)"}),
    Edit("the share is of data and computation only: a step ends after communication",
         {SHARE: "lost / arrival[rank or 0, since:].median().item()"}),
    Edit("the cost is that of all steps together: expected the seconds of one step",
         {LOST: "lateness[since:].sum().item()", SHARE: "lateness[since:].median().item() / "
                                                        "length[since:].median().item()"}),
    Edit("the seconds that all other ranks wait are added up: a step is longer by the wait of one",
         {LOST: f"{LOST} * (len(arrival) - 1 if rank is not None else 1)",
          SHARE: "lateness[since:].median().item() / length[since:].median().item()"}),
    Edit("milliseconds are returned: expected seconds",
         {RETURN: f"lost *= 1000\n{' ' * 12}{RETURN}"}),
    Edit("steps are counted from 1: the first is step 0", {'"since": since': '"since": since + 1'}),
    Edit("the share is in percent: expected a part of 1", {'"share": share': '"share": 100 * share'}),
    Edit("since is the first step in which the rank was ever late: it was in time again after it",
         {'"since": since': '"since": int(is_late.nonzero()[0])'}),
    Edit("since is the first step from which on 90% are late, though the rank is in time in it",
         {SKIP: f"if {ENOUGH}:"}),
    Edit("the rank is expected to be late in every step: 90% are enough", {"< 0.9": "< 1.0"}),
    Edit("the rank is expected to be late in more than 90% of the steps: 90% are enough",
         {ENOUGH: ENOUGH.replace("<", "<=")}),
    Edit("80% of the steps are taken to be enough: 90% are", {"< 0.9": "< 0.8"}),
    Edit("one step in time is forgiven, however few steps there are: 90% have to be late",
         {ENOUGH: "(~is_late[since:]).sum() > 1"}),
    Edit("six steps are taken to be the fewest: five are enough", {LAST: "range(len(length) - 5)"}),
    Edit("only the rank that is late in the last step is looked at: 90% of the steps are enough",
         {"in late.items():": "in [max(late.items(), key=lambda item: item[1][-1])]:"}),
    Edit("a phase is compared with the mean of all ranks: one that is unlike all others moves it",
         {MORE: MORE.replace("median(dim=0).values", "mean(dim=0)")}),
    Edit("noise is taken to be that of the Example: it is an argument", {"lateness > noise": "lateness > 0.015"}),
    Edit("transfer is taken to be that of the Example: it is an argument",
         {NETWORK: NETWORK.replace("transfer", "0.01")}),
    Edit("the cost is a mean: one step that took very long moves it, a median it does not",
         {LOST: "lateness[since:].mean().item()", SHARE: "lateness[since:].median().item() / "
                                                         "length[since:].median().item()"}),
    Edit("the share is made of means: one step that took very long moves them, medians it does not",
         {SHARE: "lateness[since:].mean().item() / length[since:].mean().item()"}),
    Edit("the phase is found by means: one step that took very long moves them, medians it does not",
         {MOST: MOST.replace("median", "mean")}),
    Edit("cost and share are made of means: one step that took very long moves them, medians it does not",
         {LOST: "lateness[since:].mean().item()", SHARE: "lost / length[since:].mean().item()"}),
    Edit("the cost is counted against the median rank: without the slow one, all would wait for the second last",
         {LOST: "(lateness if rank is None else arrival[rank] - arrival.median(dim=0).values)[since:].median()"
                ".item()"}),
    Edit("late is what comes after the median of the other ranks: it is what comes after the last of them",
         {LATE: "arrival[rank] - others.median(dim=0).values"}),
    Edit("ranks are compared in one phase only: who arrives late, after both?",
         {LATE: 'torch.stack([seconds[p][rank] - seconds[p].median(dim=0).values for p in ("data", "computation")])'
                ".amax(dim=0)",
          "in late.items():": "in sorted(late.items(), key=lambda item: -item[1].median()):"}),
    Edit("the rank that is late in most steps of the table is taken: who is slow to the end?",
         {"in late.items():": "in [max(late.items(), key=lambda item: (item[1] > noise).sum())]:"}),
    Edit("a slow network is overlooked: even the last rank is long in its all-reduce",
         {NETWORK: "torch.zeros_like(length)"}),
    Edit("the network is judged by the rank that waits longest: only the last rank waits for nobody",
         {NETWORK: 'seconds["communication"].amax(dim=0) - transfer'}),
    Edit("the cost of a slow network is the whole all-reduce: transfer of it is what a healthy one takes",
         {NETWORK: 'seconds["communication"].amin(dim=0)'}),
    Edit("the cost of a slow network counts the wait for the last rank as well: take the rank that waits least",
         {LOST: 'lateness[since:].median().item() if rank is not None else '
                '(seconds["communication"].mean(dim=0)[since:].median() - transfer).item()'}),
    Edit("a rank is blamed for the slow network: the table cannot tell whose link it is",
         {RETURN: LEAST + RETURN}),
    Edit("every difference counts: no more than noise says nothing", {"lateness > noise": "lateness > 0"}),
    Edit("somebody is always named: where nobody is slow, the result is None",
         {"return None\n": 'last = {"rank": int(arrival.mean(dim=1).argmax()), "phase": "computation", "since": 0}\n'
                           '    return {**last, "seconds": 0.0, "share": 0.0}\n'}),
    Edit("a few late steps at the end are taken for a slow rank: five are needed",
         {LAST: "range(len(length))"}),
)  # fmt: skip


def made(case: Case) -> tuple[dict[str, torch.Tensor], list[int], int, float]:
    """The table; the ranks in the order in which the case numbers them; the step since which one is slow; the unit."""
    p, g = case.params, case.generator()
    n: int = p.get("ranks", 4)
    order: list[int] = torch.randperm(n, generator=g).tolist()
    steps, unit = STEPS + int(torch.randint(4, (), generator=g)), 2 + torch.rand((), generator=g).item()
    since = steps - p.get("last", steps)
    spread = 0.0003 * (torch.rand(len(PHASES), n, steps, generator=g, dtype=torch.float64) - 0.5)
    spread[2] = spread[2, 0]  # of the network: all ranks leave together
    own = {name: BASE[name] + spread[k] for k, name in enumerate(PHASES)}
    slow = p.get("slow")
    if slow:
        own[slow][slice(None) if slow == "communication" else order[0], since:] += 0.060
    for who, phase, first, last, ms in p.get("extra", ()):
        own[phase][slice(None) if who is None else order[who], first % steps : last % steps + 1] += ms / 1000
    arrival = own["data"] + own["computation"]  # (ranks, steps)
    own["communication"] = own["communication"] + arrival.amax(dim=0) - arrival
    return {name: unit * table for name, table in own.items()}, order, since, unit


def inputs(case: Case) -> Given:
    seconds, _, _, unit = made(case)
    return [{"seconds": seconds, "transfer": unit * TRANSFER, "noise": unit * NOISE}] * case.world_size


def on_rank(answer: Any, seconds: Any, transfer: Any, noise: Any) -> Any:
    return answer(seconds, transfer, noise)


def expected(case: Case, given: Given) -> list[Any]:
    """The rank that was made slow, and by how much the last arrival of a step comes after the second last."""
    seconds, order, since, unit = made(case)
    slow = case.params.get("slow")
    if slow is None:
        return [None] * case.world_size
    length = torch.stack([table[0, since:] for table in seconds.values()]).sum(dim=0).sort().values
    arrival = seconds["data"] + seconds["computation"]  # (ranks, steps)
    cost = arrival[order[0]] - arrival[order[1:]].sort(dim=0).values[-1]
    if slow == "communication":
        cost = seconds[slow].sort(dim=0).values[0] - unit * TRANSFER
    middle = cost[since:].sort().values[len(length) // 2].item()
    result = {"rank": None if slow == "communication" else order[0], "phase": slow, "since": since}
    return [{**result, "seconds": middle, "share": middle / length[len(length) // 2].item()}] * case.world_size


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    for key in ("rank", "since"):
        if isinstance(got[0], dict) and isinstance(got[0][key], float):
            return Finding("DTL-VALUE-TYPE", f"{key} is {got[0][key]}: expected a whole number")
    return None


def why(case: Case, given: Given, record: Record) -> str:
    shape = tuple(given[0]["seconds"]["data"].shape)
    return f"{MAY_HELP}{case.says or f'each table has the shape (ranks, steps), here {shape}'}"


def example() -> dict[str, torch.Tensor]:
    """The task's example, in seconds."""
    ms = {
        "data": [[20] * 7, [50, 20, 50, 50, 50, 50, 50], [20] * 7],
        "computation": [[60] * 7, [60] * 7, [62] * 7],
        "communication": [[40, 12, *[40] * 5], [10, 12, *[10] * 5], [38, 10, *[38] * 5]],
    }
    return {name: torch.tensor(rows, dtype=torch.float64) / 1000 for name, rows in ms.items()}


CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    example=[{"seconds": example(), "transfer": TRANSFER, "noise": NOISE}],
    verify=verify,
    why=why,
    rules=[rules.most_messages("0")],
    reads=[no_stores],
    rtol=0.02,
    atol=1e-6,
)
