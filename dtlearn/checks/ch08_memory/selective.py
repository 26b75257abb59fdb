"""ch08.selective: small graphs of operations, each with several budgets; of a choice its FLOPs and its bytes count."""

from __future__ import annotations

from collections.abc import Collection
from itertools import combinations
from typing import Any

import torch

from dtlearn.grading import Case, Check, Edit, Given, rules

Operation = dict[str, Any]
INPUTS = "what is computed again needs its inputs: they are kept or computed again as well, and so are theirs"
# Rows of operations: name, 1,000 bytes, 1,000 FLOPs, inputs, whether backward reads the result. Per case: `shares`,
# of the bytes of all that is saved, which are budgets; `exact`: the budgets are the bytes of good choices.
CASES: dict[str, dict[str, Any]] = {
    "a chain": {
        "rows": ("norm:1:1::y", "up:4:800:norm:y", "gelu:4:4:up:y", "down:1:800:gelu:n", "dropout:1:1:down:n"),
    },
    "a result that two operations read": {
        "says": "an operation is computed again once, however many others read its result, and not if it is kept",
        "rows": ("norm:1:300::n", "gate:4:500:norm:y", "up:4:700:norm:y", "silu:4:4:gate:y", "product:4:4:silu,up:y"),
    },
    "results that backward does not read": {
        "says": f"{INPUTS}. So a result may be worth keeping that backward does not read itself",
        "rows": ("a:1:500::y", "b:2:300:a:n", "c:9:400:b:n", "d:6:20:c:y", "e:6:30:c:y", "f:20:700::n", "g:6:10:f:y"),
    },
    "as many FLOPs with fewer bytes": {
        "says": "of several choices with the fewest FLOPs one with the fewest bytes is expected",
        "rows": ("both:3:11::y", "first:1:4::y", "second:1:7::y"),
        "even": True,
        "shares": (0.65, 0.8),
    },
    "exactly the budget": {
        "says": "exactly the budget is within it",
        "rows": ("norm:1:1::y", "up:4:800:norm:y", "gelu:4:4:up:y"),
        "exact": True,
    },
    "a budget of 0": {
        "says": "nothing fits into a budget of 0, and an empty list is expected",
        "rows": ("norm:1:1::y", "up:4:800:norm:y", "gelu:4:4:up:y"),
        "shares": (0.0,),
    },
}
SAVED, UPDATE = '{o["name"] for o in operations if o["saved"]}', 'needed.update(operation["inputs"])'
COUNT, NOT_KEPT = 'again += operation["flops"]', 'operation["name"] in needed and operation["name"] not in kept'
RETURN, LESS = "return best[2]", "(again, nbytes) < best[:2]"
FEWEST = "of several choices with as few FLOPs one is taken that has more bytes than needed"
GREEDY = """kept, held = [], 0
    for o in sorted(operations, key=lambda o: {}):
        if {}:
            continue
        if held + o["bytes"] > budget:
            {}
        kept.append(o["name"])
        held += o["bytes"]
    return kept"""
WAYS = {
    "most FLOPs per byte": '-o["flops"] / o["bytes"]',
    "most FLOPs": '-o["flops"]',
    "fewest bytes": 'o["bytes"]',
    "most bytes": '-o["bytes"]',
    "the earliest": "0",
}
EDITS = (
    Edit("the names that are not kept are returned: those to keep are expected",
         {RETURN: "return [name for name in by_name if name not in best[2]]"}),
    Edit("the names to compute again are returned: those to keep are expected",
         {"again = 0": "again, redone = 0, []", COUNT: f'{COUNT}; redone.append(operation["name"])',
          "list(kept)": "redone"}),
    Edit("the budget is ignored: the bytes of what is kept are more", {"if nbytes > budget:": "if False:"}),
    Edit("the FLOPs of every operation that is not kept are counted: one whose result neither backward nor an "
         "operation that is computed again reads is not computed again", {SAVED: '{o["name"] for o in operations}'}),
    Edit("only the FLOPs of results that backward reads are counted: to compute one again its inputs must be there",
         {UPDATE: "pass"}),
    Edit("inputs of what is computed again are counted, but not the inputs of those in turn",
         {UPDATE: 'needed.update(operation["inputs"] if operation["saved"] else ())'}),
    Edit("an operation that several others read is counted once for each of them: it is computed again once",
         {SAVED: '[o["name"] for o in operations if o["saved"]]',
          COUNT: 'again += operation["flops"] * needed.count(operation["name"])',
          UPDATE: 'needed.extend(operation["inputs"] * needed.count(operation["name"]))'}),
    Edit("what is kept is treated as if its inputs were needed, too: they are not, it is there",
         {NOT_KEPT: 'operation["name"] in needed',
          COUNT: 'again += operation["flops"] * (operation["name"] not in kept)'}),
    Edit("an input of what is computed again is computed again, too, although it is kept",
         {f"needed = {SAVED}": f"needed, forced = {SAVED}, set()",
          NOT_KEPT: f'operation["name"] in forced or ({NOT_KEPT})', UPDATE: 'forced.update(operation["inputs"])'}),
    Edit("the fewest operations are computed again: their FLOPs count", {COUNT: "again += 1"}),
    Edit("the fewest bytes are computed again: their FLOPs count", {COUNT: 'again += operation["bytes"]'}),
    Edit("only results that backward reads are kept: another result may be worth keeping, as what is computed again "
         "reads it",
         {"combinations(by_name, count)": 'combinations([o["name"] for o in operations if o["saved"]], count)'}),
    Edit(FEWEST, {LESS: "again <= best[0]"}),
    Edit(FEWEST, {LESS: "again < best[0]"}),
    Edit("the choice with the fewest bytes is taken: it is the FLOPs that count first",
         {LESS: "(nbytes, again) < best[1::-1]"}),
    Edit("to keep nothing is not considered: with a budget of 0 an empty list is expected",
         {"range(len(operations) + 1)": "range(1, len(operations) + 1)",
          RETURN: "return best[2] if best else list(by_name)[:1]"}),
    Edit("a choice of exactly the budget is taken for too large", {"nbytes > budget": "nbytes >= max(budget, 1)"}),
    *(Edit(f"operations are kept in turn, {name} first, as long as they fit: that misses better choices, as one may "
           "need others", {RETURN: GREEDY.format(key, skip, stop)})
      for name, key in WAYS.items() for skip in ("False", 'not o["saved"]') for stop in ("continue", "break")),
)  # fmt: skip


def inputs(case: Case) -> Given:
    given, p = list[dict[str, Any]](), case.params
    for rank in range(case.world_size):
        g = case.generator(rank)

        def number(low: int, high: int, g: torch.Generator = g) -> int:
            return int(torch.randint(low, high, (), generator=g))

        operations: list[Operation] = []
        for row in p["rows"]:
            name, nbytes, flops, read, saved = row.split(":")
            costs = {"bytes": int(nbytes) * 1000 + number(0, 200), "flops": int(flops) * 1000 + number(0, 900)}
            operations.append({"name": name, **costs, "inputs": read.split(",") if read else [], "saved": saved == "y"})
        if "even" in p:  # one has the FLOPs of two others
            operations[0]["flops"] = sum(o["flops"] for o in operations[1:])
        total = sum(o["bytes"] for o in operations if o["saved"])
        budgets = [int(total * share) for share in p.get("shares", (0.2, 0.35, 0.5, 0.65, 0.8, 1.1))]
        if "exact" in p:
            budgets = [nbytes for _, nbytes in best(operations, budgets) if nbytes]
        given.append({"operations": operations, "budgets": sorted({*budgets})})
    return given


def best(operations: list[Operation], budgets: list[int]) -> list[tuple[int, int]]:
    """The FLOPs and the bytes of the best choice within each budget, found by trying all choices."""
    of_name = {o["name"]: o for o in operations}

    def redone(name: str, kept: Collection[str]) -> set[str]:
        """Return what has to be computed for this result."""
        parts = [redone(read, kept) for read in of_name[name]["inputs"]]
        return set() if name in kept else {name}.union(*parts)

    costs = []
    for kept in (one for count in range(len(operations) + 1) for one in combinations(of_name, count)):
        again = set[str]().union(*(redone(o["name"], kept) for o in operations if o["saved"]))
        costs.append((sum(of_name[n]["flops"] for n in again), sum(of_name[n]["bytes"] for n in kept)))
    return [min(cost for cost in costs if cost[1] <= budget) for budget in budgets]


def on_rank(answer: Any, operations: Any, budgets: Any) -> Any:
    facts: dict[str, Any] = {}
    for budget in budgets:
        kept = answer([dict(operation) for operation in operations], budget)
        if not isinstance(kept, list) or sorted(kept) != sorted({o["name"] for o in operations if o["name"] in kept}):
            raise ValueError(f"a list of names of operations is expected, each once; this is {str(kept)[:60]}")
        needed, again = {o["name"] for o in operations if o["saved"]}, 0
        for operation in reversed(operations):
            if operation["name"] in needed and operation["name"] not in kept:
                again += operation["flops"]
                needed.update(operation["inputs"])
        held = sum(o["bytes"] for o in operations if o["name"] in kept)
        facts[f"budget {budget:,}"] = {
            "within it": held <= budget,
            "FLOPs to compute again": again,
            "bytes kept": held,
        }
    return facts


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    return [
        {
            f"budget {budget:,}": {"within it": True, "FLOPs to compute again": again, "bytes kept": held}
            for budget, (again, held) in zip(own["budgets"], best(own["operations"], own["budgets"]), strict=True)
        }
        for own in given
    ]


FIELDS = "name", "bytes", "flops", "inputs", "saved"
EXAMPLE = [("norm", 10, 10, [], True), ("up", 40, 800, ["norm"], True), ("gelu", 40, 40, ["up"], True),
           ("down", 10, 800, ["gelu"], False)]  # fmt: skip
CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    example=[{"operations": [dict(zip(FIELDS, row, strict=True)) for row in EXAMPLE], "budgets": [50]}] * 2,
    rules=[rules.most_messages("0")],
    seconds=20.0,
)  # fmt: skip
