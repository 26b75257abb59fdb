"""ch11.simulator: a schedule without transfers; then transfers, stages that differ, several on a rank, split passes."""

from __future__ import annotations

from typing import Any

import torch

from dtlearn.grading import Case, Check, Edit, Given, rules
from dtlearn.runtime.record.record import Record

from . import MAY_HELP
from ._schedules import Action, Orders, Played, as_tuples, one_f_one_b, peaks, play, read, text_of

TWO = "0F0 0F1 0B0 0B1 / 1F0 1B0 1F1 1B1"
# Per case: `orders`; `placement`, where not each rank has one stage; `times`; `transfer`.
CASES: dict[str, dict[str, Any]] = {
    "two equal stages": {"orders": TWO, "times": {"F": [1, 1], "B": [2, 2]}},
    "stages of their own times": {
        "orders": TWO, "times": {"F": [1, 3], "B": [5, 4]}, "says": "times[op] has a time for each stage"},
    "a transfer": {
        "orders": TWO, "times": {"F": [1, 3], "B": [5, 4]}, "transfer": 3,
        "says": "a result takes `transfer` to another rank, and the rank that sends it goes on meanwhile"},
    "two stages on one rank": {
        "orders": "0F0 0F1 1F0 1B0 0B0 1F1 1B1 0B1", "placement": [0, 0], "times": {"F": [1, 3], "B": [5, 4]},
        "transfer": 3,
        "says": "a rank may hold several stages: each has times and activations of its own, and a result for the same "
        "rank is there at once"},
    "a split backward pass": {
        "orders": "0F0 0F1 0I0 0F2 0W0 0I1 0W1 0I2 0W2 / 1F0 1I0 1F1 1I1 1W0 1F2 1I2 1W1 1W2",
        "times": {"F": [1, 3], "I": [4, 2], "W": [2, 5]},
        "says": "another rank waits for an I, nobody waits for a W, and an activation is live to the end of its W"},
    "split and whole backward passes": {
        "orders": "0F0 0I0 0W0 0F1 0F2 0I1 0I2 0W1 0W2 / 1F0 1B0 1F1 1F2 1B1 1B2 / "
        "2F0 2I0 2F1 2W0 2I1 2F2 2W1 2I2 2W2",
        "times": {"F": [1, 3, 2], "B": [5, 4, 6], "I": [4, 2, 3], "W": [2, 3, 1]},
        "says": "a B, or an I, needs the B or the I of the next stage, whichever that does"},
    "many ranks": {"many": True, "says": "go over the ranks again and again, until each has come to its end"},
}  # fmt: skip
START, END = "ends[needed] + transfer * (placement[needed[0]] != rank))", "free[rank] = start + times[op][stage]"
NOTE, BUSY = 'ends[stage, "B" if op == "I" else op, k] = free[rank]', "sum(times[op][stage] for stage, op, _ in order)"
NEXT, WEIGHTS = '([(stage + 1, "B", k)] if stage + 1 < len(placement) else [])', 'return [(stage, "B", k)]'
SPAN = "max(free)"
IDLE = 'made["idle"].append(made["makespan"] - '
ENDED, BEGAN = "free[orders.index(order)]", '(ends[order[0]] - times["F"][order[0][0]])'
LIVE, PEAK, RETURN = '(op in "BW")', 'made["peak"].append(peak)', "return made\n"
EACH = 'for _, op, _ in order:\n            live += (op == "F") - (op in "BW")\n            peak = max(peak, live)'
EDITS = (
    Edit("the time that a result travels is left out: it takes `transfer` to another rank",
         {START: "ends[needed])"}),
    Edit("`transfer` is added on the same rank, too: there a result is at hand at once",
         {START: "ends[needed] + transfer)"}),
    Edit("`transfer` is added between two stages of one rank, too: there a result is at hand at once",
         {START: "ends[needed] + transfer * (needed[0] != stage))"}),
    Edit("`transfer` is added to results of forward passes only: gradients travel, too",
         {START: f"{START[:-1]} * (needed[1] == 'F'))"}),
    Edit("`transfer` is taken for 1, whatever its length is",
         {START: "ends[needed] + (placement[needed[0]] != rank))"}),
    Edit("the rank that sends is busy while its result travels: it goes on with its next action",
         {NOTE: f"{NOTE}\n                to = stage + (1 if op == 'F' else -1)\n                "
          "free[rank] += transfer * (op != 'W' and 0 <= to < len(placement) and placement[to] != rank)"}),
    Edit("a B, or an I, does not wait for that of the next stage, from which its gradient comes", {NEXT: "[]"}),
    Edit("the B or I of a stage waits for the W of the next stage: it needs its I only",
         {NOTE: NOTE.replace("I", "W"), WEIGHTS: 'return [(stage, "I", k)]'}),
    Edit("the makespan is the longest time that a rank is busy: actions need the results of others, and gaps count",
         {"for needed in needs(stage, op, k)": "for needed in ()"}),
    Edit("a rank does several actions at once: one begins when the action before it has ended",
         {"start = free[rank]": "start = 0", END: "end = start + times[op][stage]\n                "
          "free[rank] = max(free[rank], end)", NOTE: NOTE.replace("free[rank]", "end")}),
    Edit("the times of stage 0 are taken for those of all stages",
         {END: END.replace("[stage]", "[0]"), BUSY: BUSY.replace("[stage]", "[0]")}),
    Edit("`times` is read by rank: it has a time for each stage",
         {END: END.replace("[stage]", "[rank]"), BUSY: BUSY.replace("[stage]", "[orders.index(order)]")}),
    Edit("`times` is read by rank: it has a time for each stage", {END: END.replace("[stage]", "[rank]")}),
    Edit("a W takes no time here: it takes times['W'] of its stage",
         {END: f"{END} * (op != 'W')", BUSY: BUSY.replace("for stage", "* (op != 'W') for stage")}),
    Edit("the makespan is the sum of all times: ranks work at once", {SPAN: f"sum({BUSY} for order in orders)"}),
    Edit("the makespan is when rank 0 ends: another may end later", {SPAN: "free[0]"}),
    Edit("the makespan is when the last rank ends: another may end later", {SPAN: "free[-1]"}),
    Edit("only the gaps between a rank's first action and its last are counted as idle: all from 0 to the makespan is",
         {IDLE: f'made["idle"].append({ENDED} - {BEGAN} - '}),
    Edit("the time after a rank's last action is left out of its idle time: that counts up to the makespan",
         {IDLE: f'made["idle"].append({ENDED} - '}),
    Edit("the time before a rank's first action is left out of its idle time: that counts from 0",
         {IDLE: f"{IDLE}{BEGAN} - "}),
    Edit("'idle' has the busy times: idle is the rest up to the makespan", {IDLE: 'made["idle"].append('}),
    Edit("'idle' is a share of the makespan: a time is expected",
         {f"{IDLE}{BUSY})": f"{IDLE}{BUSY}); made['idle'][-1] /= made['makespan']"}),
    Edit("an I ends the activation here: its W still needs it", {LIVE: '(op in "BI")'}),
    Edit("a W does not end an activation here: it does", {LIVE: '(op in "B")'}),
    Edit("the I and the W of a micro-batch each end an activation here: only the W does", {LIVE: '(op in "BIW")'}),
    Edit("activations are never freed here: a B or a W frees one", {LIVE: "0"}),
    Edit("the live activations after each backward pass are counted: most are there before one",
         {PEAK: 'made["peak"].append(peak - 1)'}),
    Edit("the peak of all ranks is given for each",
         {RETURN: f'made["peak"] = [max(made["peak"])] * len(orders)\n    {RETURN}'}),
    Edit("micro-batches are counted: each stage of a rank keeps its own activations of them",
         {EACH: "held = set()\n        for s, op, k in order:\n            "
          "held = held | {(s, k)} if op == 'F' else held - {(s, k)} if op in 'BW' else held\n            "
          "peak = max(peak, len({k for _, k in held}))"}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    """A case's schedule and times; with `many`, 1F1B on 8 ranks numbered at random, with random times."""
    p, g = case.params, case.generator()
    if "many" not in p:
        orders = read(p["orders"])
        placement = p.get("placement", [*range(len(orders))])
        return [{"orders": orders, "placement": placement, "times": p["times"], "transfer": p.get("transfer", 0)}]
    names = torch.randperm(8, generator=g).tolist()
    many: Orders = [[] for _ in names]
    for name, order in zip(names, one_f_one_b(8, 12), strict=True):
        many[name] = order
    times = {op: torch.randint(1, 9, (8,), generator=g).tolist() for op in "FB"}
    return [{"orders": many, "placement": names, "times": times, "transfer": int(torch.randint(1, 9, (), generator=g))}]


def on_rank(answer: Any, orders: Any, placement: Any, times: Any, transfer: Any) -> Any:
    """The results with all numbers as texts; if the answer does not end, a note instead."""
    from dtlearn.grading.on_rank.processor_limit import Endless, ProcessorLimit

    def number(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [number(one) for one in value]
        return f"{value:.12g}" if isinstance(value, int | float) else repr(value)[:80]

    given = [[tuple(action) for action in order] for order in orders]
    try:
        with ProcessorLimit(0.5):  # seconds; an answer takes some milliseconds
            found = answer(given, list(placement), dict(times), transfer)
    except Endless as error:
        late = f"not found within 0.5 s, after which your function was at line {error.line}"
        return dict.fromkeys(("makespan", "idle", "peak"), late)
    return {key: number(value) for key, value in found.items()} if isinstance(found, dict) else found


def played(own: dict[str, Any]) -> Played:
    def delay(action: Action, rank: int) -> int:
        return int(own["transfer"] * (own["placement"][action[0]] != rank))

    return play(as_tuples(own["orders"]), own["placement"], lambda a: int(own["times"][a[1]][a[0]]), delay)


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    own = given[0]
    orders, makespan = as_tuples(own["orders"]), played(own).makespan
    idle = [str(makespan - sum(own["times"][op][stage] for stage, op, _ in order)) for order in orders]
    return [{"makespan": str(makespan), "idle": idle, "peak": [*map(str, peaks(orders))]}]


def task_text(case: Case, given: Given, rank: int) -> str:
    """The schedule, with the right start and end of each action."""
    own, times = given[0], played(given[0])
    rows = [
        ", ".join(f"{text_of(a)} {times.start[a]}-{times.end[a]}" for a in o[:16]) for o in as_tuples(own["orders"])
    ]
    shown = "; ".join(f"rank {r}: {row}{', ...' * (len(own['orders'][r]) > 16)}" for r, row in enumerate(rows))
    text = f"stages on the ranks {own['placement']}, transfer {own['transfer']}, times {own['times']}. "
    return f"{text}The right starts and ends are {shown}"


def why(case: Case, given: Given, record: Record) -> str:
    """The hint for a run that raised: what is special about its case."""
    text = "what an action needs may be done by a rank of a higher or a lower number"
    return f'{MAY_HELP}this is with "{case.name}": {case.says or text}'


CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    example=[{"orders": read(TWO), "placement": [0, 1], "times": {"F": [1, 1], "B": [2, 2]}, "transfer": 1}],
    task_text=task_text,
    why=why,
    rules=[rules.most_messages("0")],
    seconds=5.0,
)
