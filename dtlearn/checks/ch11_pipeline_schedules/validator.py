"""ch11.validator: a valid schedule, each kind of fault, and each way in which ranks wait forever."""

from __future__ import annotations

from typing import Any

import torch

from dtlearn.grading import Case, Check, Edit, Given, rules
from dtlearn.runtime.record.record import Record

from . import MAY_HELP
from ._schedules import Orders, as_tuples, every, needs, one_f_one_b, play, read, text_of, told

LISTS = ("unknown", "missing", "repeated", "misplaced")
STRANGE = "an action whose op, stage or micro-batch does not exist is unknown, and in no other list"
ITSELF = "a rank that waits for an action further down in its own order waits for itself: that is a circle"
# Per case: `orders`; `placement`, where not each rank has one stage; `ops`; `m`, the number of micro-batches.
CASES: dict[str, dict[str, Any]] = {
    "a valid schedule": {"orders": "0F0 0F1 0B0 0B1 / 1F0 1B0 1F1 1B1"},
    "a rank without a stage": {
        "orders": "0F0 0F1 0B0 0B1 / / 1F0 1B0 1F1 1B1", "placement": [0, 2],
        "says": "a rank may have nothing to do: 'stuck' has an entry for each rank, as `orders` has"},
    "a valid schedule with I and W": {
        "orders": "0F0 3F0 3I0 3W0 0F1 0I0 3F1 3I1 0W0 0I1 0W1 3W1 / 1F0 2F0 2I0 2W0 1I0 1F1 2F1 2I1 1W0 1I1 1W1 2W1",
        "placement": [0, 1, 1, 0], "ops": "FIW",
        "says": "the backward pass may be split: an I needs the I of the next stage, not its W"},
    "many ranks": {"many": True, "says": "go over the ranks again and again, until none of them gets on"},
    "a missing action": {
        "orders": "0F0 0F1 0B0 / 1F0 1B0 1F1 1B1", "says": "an action that is in no rank's order is missing"},
    "a missing action that others wait for": {
        "orders": "0F0 0F1 0B0 0B1 / 1F0 1B0 1F1",
        "says": "if one of the first four lists is not empty, report no stuck ranks and no circle"},
    "an action three times in an order": {
        "orders": "0F0 0F1 0F0 0B0 0B1 0F0 / 1F0 1B0 1F1 1B1",
        "says": "an action that occurs more than once in `orders` is repeated, and listed once"},
    "an action on the wrong rank": {
        "orders": "0F0 0F1 0B0 / 1F0 1B0 1F1 1B1 0B1",
        "says": "an action that stands only with a rank that does not hold its stage is misplaced, and nothing else"},
    "an action on two ranks": {
        "orders": "0F0 0F1 0B0 0B1 / 1F0 1B0 1F1 1B1 0B1",
        "says": "an action that its own rank does and another one as well is repeated, and misplaced"},
    "an action twice on the wrong rank": {
        "orders": "0F0 0F1 0B0 / 1F0 1B0 0B1 1F1 1B1 0B1",
        "says": "each list has each action once, however often it stands in `orders`"},
    "an op that does not exist": {"orders": "0F0 0F1 0B0 0B1 / 1F0 1B0 1F1 1B1 1W1", "says": STRANGE},
    "a stage that does not exist": {"orders": "0F0 0F1 0B0 0B1 / 1F0 1B0 1F1 1B1 2F0", "says": STRANGE},
    "stage -1": {
        "orders": "0F0 0F1 0B0 0B1 / 1F0 1B0 1F1 1B1 -1F0",
        "says": f"{STRANGE}; placement[-1] is the last stage's rank, and no error"},
    "micro-batch -1": {
        "orders": "0F0 0F1 0B0 0B1 / 1F0 1B0 1F1 1B1 1B-1", "says": f"{STRANGE}; micro-batches count from 0"},
    "an unknown action on both ranks": {"orders": "0F0 0F1 0B0 0B1 0F2 / 1F0 1B0 1F1 1B1 0F2", "says": STRANGE},
    "two ranks that wait for each other": {
        "orders": "0F0 0B0 0F1 0B1 / 1F0 1F1 1B0 1B1",
        "says": "ranks may wait forever: stop after a pass over them in which none got on, and say where each waits"},
    "a rank that waits for itself": {"orders": "0B0 0F0", "m": 1, "says": ITSELF},
    "a rank that waits for another one's circle": {
        "orders": "0F0 0F1 0B0 0B1 / 1F0 1B0 1B1 1F1",
        "says": "a rank that only waits for ranks of a circle is stuck, but not in the circle: following whom it waits "
        "for does not lead back to it"},
    "two circles": {
        "orders": "1B0 1F0 / 0B0 0F0", "placement": [1, 0], "m": 1,
        "says": "there may be several circles: go on after the first"},
    "Is and Ws that wait": {
        "orders": "0F0 0W0 0I0 / 1F0 1I0 1W0 / 2I0 2F0 2W0 / 3W0 3F0 3I0", "ops": "FIW", "m": 1,
        "says": "an I needs the F of its stage and the I of the next one; a W needs the I of its stage"},
    "a circle of three ranks": {
        "orders": "0F0 3F0 0B0 3B0 / 1F0 1B0 / 2F0 2B0", "placement": [0, 1, 2, 0], "m": 1,
        "says": "a circle may have more than two ranks: follow who waits for whom from rank to rank"},
    "a rank that waits for two": {
        "orders": "0B0 0F0 / 1F0 1B0", "m": 1,
        "says": "a rank may wait for two ranks at once, for one of them perhaps itself: follow both"},
}  # fmt: skip
UNKNOWN, MISSING = "[a for a in counts if a not in wanted]", "[a for a in wanted if a not in counts]"
REPEATED, TWICE = "[a for a, count in counts.items() if a in wanted and count > 1]", "if a in wanted and count > 1"
MISPLACED = "a for a in wanted if any(a in order for rank, order in enumerate(orders) if rank != placement[a[0]])"
PLAYED = 'if any(found[key] for key in ("unknown", "missing", "repeated", "misplaced")):'
OWN, NEXT, AFTER = (
    'return [(stage, "F", k)] + ',
    "[(stage + 1, op, k)]",
    "[(stage + 1, op, k)] if stage + 1 < num_stages",
)
BEFORE, WEIGHTS = '[(stage - 1, "F", k)] if stage', 'return [(stage, "I", k)]'
WAITS = "{placement[a[0]] for a in needs(order[place[rank]]) if a not in done}"
FOLLOW, INSIDE = "for _ in orders:  # add", "for rank, ranks in enumerate(waits_for) if rank in ranks]"
ENOUGH = "while before < len(done):\n        before = len(done)"
EDITS = (
    Edit("'stuck' has an entry for each stage: there is one for each rank",
         {"[None] * len(orders)": "[None] * num_stages"}),
    Edit("an action is looked for within each rank's order: count over all ranks together",
         {REPEATED: "[a for a in counts if a in wanted and max(order.count(a) for order in orders) > 1]"}),
    Edit("an unknown action that stands there twice is reported as repeated, too", {TWICE: "if count > 1"}),
    Edit("a repeated action is listed as often as it stands in `orders`: each list has each action once",
         {REPEATED: "[a for order in orders for a in order if a in wanted and counts[a] > 1]"}),
    Edit("an unknown action is listed as often as it stands in `orders`: each list has each action once",
         {UNKNOWN: "[a for order in orders for a in order if a not in wanted]"}),
    Edit("a misplaced action is listed as often as it stands in `orders`: each list has each action once",
         {MISPLACED: "a for rank, own in enumerate(orders) for a in own if a in wanted and rank != placement[a[0]]"}),
    Edit("an action that stands only with another rank is reported as missing: that is misplaced, and nothing else",
         {MISSING: "[a for a in wanted if a not in orders[placement[a[0]]]]"}),
    Edit("an action that its own rank does as well is not reported as misplaced where another rank does it",
         {MISPLACED: f"{MISPLACED} and a not in orders[placement[a[0]]]"}),
    Edit("stage -1 is taken for a stage: placement[-1] is the last one's rank, and no error",
         {UNKNOWN: "[a for a in counts if (max(a[0], 0), a[1], a[2]) not in wanted]"}),
    Edit("micro-batch -1 is taken for one: they count from 0",
         {UNKNOWN: "[a for a in counts if (a[0], a[1], max(a[2], 0)) not in wanted]"}),
    Edit("negative stages and micro-batches are taken for some: both count from 0",
         {UNKNOWN: "[a for a in counts if (max(a[0], 0), a[1], max(a[2], 0)) not in wanted]"}),
    Edit("a stage or a micro-batch that does not exist is not reported as unknown",
         {UNKNOWN: "[a for a in counts if a[1] not in ops]"}),
    Edit("actions that are in no rank's order are not reported as missing", {MISSING: "[]"}),
    Edit("an op that is not among `ops` is not reported as unknown", {UNKNOWN: f"{UNKNOWN[:-1]} and a[1] in ops]"}),
    Edit("ranks are reported as stuck, or in a circle, though one of the first four lists has something in it",
         {PLAYED: "if False:"}),
    Edit("a B, or an I, is taken for ready before the F of its own stage is done", {OWN: "return "}),
    Edit("the last stage's B, or I, is taken for ready before the F of its own stage is done",
         {OWN: "return ([(stage, 'F', k)] if stage + 1 < num_stages else []) + "}),
    Edit("a B, or an I, does not wait for that of the next stage, from which its gradient comes",
         {AFTER: "[] if False"}),
    Edit("a B, or an I, waits for the F of the next stage: it needs the B, or the I, of it",
         {NEXT: '[(stage + 1, "F", k)]'}),
    Edit("an I waits for the W of the next stage: it needs the I of it only, and that is why the backward is split",
         {NEXT: '[(stage + 1, "W" if op == "I" else op, k)]'}),
    Edit("an I waits for the B of the next stage: where the backward pass is split it needs the I",
         {NEXT: '[(stage + 1, "B", k)]'}),
    Edit("an F does not wait for that of the stage before", {BEFORE: "[] if stage"}),
    Edit("a W does not wait for the I of its stage and micro-batch", {WEIGHTS: "return []"}),
    Edit("a W waits for the F of its stage only: it needs the gradients that I makes",
         {WEIGHTS: 'return [(stage, "F", k)]'}),
    Edit("only what a rank needs of itself is looked at: ranks wait for other ranks, too",
         {"needs(order[place[rank]])):": "a for a in needs(order[place[rank]]) if placement[a[0]] == rank):"}),
    Edit("the ranks are gone over once: one that got on later may let an earlier one get on",
         {ENOUGH: "for _ in range(1):\n        pass"}),
    Edit("ranks that only wait for the circle are listed in it: following whom they wait for does not lead back to "
         "them",
         {INSIDE: INSIDE.replace("rank in ranks", "ranks")}),
    Edit(ITSELF, {WAITS: f"{WAITS} - {{rank}}"}),
    Edit("only ranks that wait for themselves are found: a circle may have several ranks", {FOLLOW: "for _ in (): # "}),
    Edit("circles of more than two ranks are not found", {FOLLOW: "for _ in range(1):  # "}),
    Edit("one circle is found where there are several",
         {INSIDE: f"{INSIDE}\n    circle = found['circle']\n    "
                  "found['circle'] = [r for r in circle if r in waits_for[circle[0]]]"}),
    Edit("a rank may wait for two ranks at once: the circle is looked for through the first of them only",
         {WAITS: "{[placement[a[0]] for a in needs(order[place[rank]]) if a not in done][0]}"}),
    Edit("a rank may wait for two ranks at once: the circle is looked for through the last of them only",
         {WAITS: "{[placement[a[0]] for a in needs(order[place[rank]]) if a not in done][-1]}"}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    """A case's schedule; with `many`, 1F1B on 12 ranks numbered at random."""
    p, g = case.params, case.generator()
    if "many" in p:
        m = int(torch.randint(9, 14, (), generator=g))
        names = torch.randperm(12, generator=g).tolist()
        orders: Orders = [[] for _ in names]
        for name, order in zip(names, one_f_one_b(12, m), strict=True):
            orders[name] = order
        return [{"orders": orders, "placement": names, "num_microbatches": m, "ops": ["F", "B"]}]
    orders = read(p["orders"])
    own = {"orders": orders, "placement": p.get("placement", [*range(len(orders))])}
    return [{**own, "num_microbatches": p.get("m", 2), "ops": [*p.get("ops", "FB")]}]


def on_rank(answer: Any, orders: Any, placement: Any, num_microbatches: Any, ops: Any) -> Any:
    from dtlearn.grading.on_rank.processor_limit import Endless, ProcessorLimit

    def name(action: Any) -> str:
        kinds = list(map(type, action)) if isinstance(action, list | tuple) else []
        return "".join(map(str, action)) if kinds == [int, str, int] else repr(action)

    def names(value: Any) -> str:
        is_list = isinstance(value, list | tuple | set | frozenset)
        return " ".join(sorted(map(name, value))) or "none" if is_list else repr(value)

    given = [[tuple(action) for action in order] for order in orders]
    try:
        with ProcessorLimit(0.5):  # seconds; an answer takes some milliseconds
            found = answer(given, list(placement), num_microbatches, tuple(ops))
    except Endless as error:
        keys = ("unknown", "missing", "repeated", "misplaced", "stuck", "circle")
        return dict.fromkeys(keys, f"not found within 0.5 s, after which your function was at line {error.line}")
    if not isinstance(found, dict):
        return found
    facts: Any = {key: names(value) for key, value in found.items() if key not in ("stuck", "circle")}
    for key in found.keys() - facts.keys():
        is_list = isinstance(found[key], list | tuple)
        facts[key] = [*map(name, found[key])] if key == "stuck" and is_list else found[key]
    return facts


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    own = given[0]
    orders, placement = as_tuples(own["orders"]), own["placement"]
    there = [action for order in orders for action in order]
    wanted = set(every(len(placement), own["ops"], own["num_microbatches"]))
    apart = {a for rank, order in enumerate(orders) for a in wanted & {*order} if placement[a[0]] != rank}
    lists = [{*there} - wanted, wanted - {*there}, {a for a in wanted if there.count(a) > 1}, apart]
    found: dict[str, Any] = {
        name: " ".join(sorted(map(text_of, list_))) or "none" for name, list_ in zip(LISTS, lists, strict=True)
    }
    stuck, waits = ["None"] * len(orders), torch.zeros(len(orders), len(orders))
    if not any(lists):
        played = play(orders, placement)
        for rank, order in enumerate(orders):
            for action in order[played.at[rank] :][:1]:
                stuck[rank] = text_of(action)
                for one_of in needs(action, len(placement)):
                    if not one_of & played.end.keys():
                        waits[rank, placement[min(one_of)[0]]] = 1
    ways = sum(torch.linalg.matrix_power(waits, n) for n in range(1, len(orders) + 1))  # from rank to rank
    return [{**found, "stuck": stuck, "circle": [rank for rank in range(len(orders)) if ways[rank, rank]]}]


def task_text(case: Case, given: Given, rank: int) -> str:
    own = given[0]
    where = f", the ranks of the stages are {own['placement']}" if case.params.get("placement") else ""
    return (
        f"the orders {told(own['orders'])}{where}; {own['num_microbatches']} micro-batches, ops {' '.join(own['ops'])}"
    )


def why(case: Case, given: Given, record: Record) -> str:
    """The hint for a run that raised: what is special about its case."""
    return f'{MAY_HELP}this is with "{case.name}", {task_text(case, given, 0)}'


ORDERS = read("0F0 0B0 0F1 0B1 / 1F0 1F1 1B0 1B1")
EXAMPLE = {"orders": ORDERS, "placement": [0, 1], "num_microbatches": 2, "ops": ["F", "B"]}
CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    example=[EXAMPLE],
    task_text=task_text,
    why=why,
    rules=[rules.most_messages("0")],
    seconds=5.0,
)
