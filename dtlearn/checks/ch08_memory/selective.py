"""ch08.selective: small graphs of operations, of blocks of a transformer and made up, each with several budgets.

What a wrong answer leads to is computed by trying all choices with another cost, or by taking operations in some order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import torch

from dtlearn.grading import Case, Check, Finding, Given, rules
from dtlearn.runtime.record.record import Record

Operation = dict[str, Any]
Cost = Callable[[Sequence[Operation], set[str]], int]

_MLP = ("norm:1:1::y", "up:4:800:norm:y", "gelu:4:4:up:y", "down:1:800:gelu:n", "dropout:1:1:down:n")
_GATED = ("norm:1:1::y", "gate:4:800:norm:y", "up:4:800:norm:y", "silu:4:4:gate:y", "product:4:4:silu,up:y")
_ATTENTION = (
    *("norm:1:2::y", "query:1:200:norm:y", "key:1:200:norm:y", "value:1:200:norm:y", "scores:6:150:query,key:n"),
    *("softmax:6:20:scores:y", "dropout:6:6:softmax:y", "context:1:150:dropout,value:y", "out:1:200:context:n"),
)
_CASES: dict[str, dict[str, Any]] = {
    "blocks of a transformer": {"blocks": (_MLP, _GATED, _ATTENTION)},
    "made-up graphs": {"random": (6, 8, 9, 10), "one for two": True},
}
_SHARES = (0.0, 0.2, 0.35, 0.5, 0.65, 0.8, 1.0)


def inputs(case: Case) -> Given:
    given: Given = []
    for rank in range(case.world_size):
        g = case.generator(rank)
        jobs = []
        graphs = [_block(rows, g) for rows in case.params.get("blocks", ())]
        graphs += [_graph(count, g) for count in case.params.get("random", ())]
        graphs += [_one_for_two(g)] if case.params.get("one for two") else []
        for operations in graphs:
            total = sum(o["bytes"] for o in operations if o["saved"])
            budgets = [int(total * share) for share in _SHARES]
            best = _best(operations, int(total * 0.6))
            exact = sum(o["bytes"] for o in operations if o["name"] in best)
            jobs += [{"operations": operations, "budget": budget} for budget in (*budgets, exact, max(exact - 1, 0))]
        given.append({"jobs": jobs})
    return given


def _number(low: int, high: int, g: torch.Generator) -> int:
    return int(torch.randint(low, high, (), generator=g))


def _block(rows: Sequence[str], g: torch.Generator) -> list[Operation]:
    made = []
    for row in rows:
        name, nbytes, flops, read, saved = row.split(":")
        size = int(nbytes) * 1000 + _number(0, 200, g)
        operation = {"name": name, "bytes": size, "flops": int(flops) * 1000 + _number(0, 900, g)}
        made.append({**operation, "inputs": read.split(",") if read else [], "saved": saved == "y"})
    return made


def _graph(count: int, g: torch.Generator) -> list[Operation]:
    made: list[Operation] = []
    for i in range(count):
        read = sorted({f"op{_number(max(0, i - 3), i, g)}" for _ in range(_number(1, 3, g))}) if i else []
        operation = {"name": f"op{i}", "bytes": _number(500, 4_000, g), "flops": _number(100, 9_000, g)}
        made.append({**operation, "inputs": read, "saved": _number(0, 4, g) > 0})
    return made


def _one_for_two(g: torch.Generator) -> list[Operation]:
    """One result has the FLOPs of two others, and more bytes: with a budget of 0.65 of all it fits, or these two."""
    flops = _number(1_000, 9_000, g), _number(1_000, 9_000, g)
    rows = [("both", _number(3_000, 3_200, g), sum(flops))]
    rows += [(name, _number(1_000, 1_300, g), one) for name, one in zip(("first", "second"), flops, strict=True)]
    return [{"name": n, "bytes": size, "flops": f, "inputs": [], "saved": True} for n, size, f in rows]


def on_rank(answer: Any, jobs: Any) -> Any:
    return [answer(**job) for job in jobs]


def again(operations: Sequence[Operation], kept: set[str]) -> list[str]:
    """The operations that are computed again."""
    needed, found = {o["name"] for o in operations if o["saved"]}, []
    for o in reversed(operations):
        if o["name"] in needed and o["name"] not in kept:
            found.append(o["name"])
            needed.update(o["inputs"])
    return found[::-1]


def flops(operations: Sequence[Operation], kept: set[str]) -> int:
    names = again(operations, kept)
    return sum(o["flops"] for o in operations if o["name"] in names)


def nbytes(operations: Sequence[Operation], kept: Any) -> int:
    return sum(o["bytes"] for o in operations if o["name"] in kept)


def _best(operations: Sequence[Operation], budget: int, cost: Cost = flops, only_saved: bool = False) -> set[str]:
    names = [o["name"] for o in operations if o["saved"] or not only_saved]
    choices = [set(c) for count in range(len(names) + 1) for c in combinations(names, count)]
    fitting = [c for c in choices if nbytes(operations, c) <= budget] or [set()]
    return min(fitting, key=lambda c: (cost(operations, c), nbytes(operations, c)))


def _greedy(
    key: Callable[[Operation], float], only_saved: bool, stop: bool
) -> Callable[[Sequence[Operation], int], set[str]]:
    """Operations are taken in this order as long as they fit; `stop`: up to the first that does not."""

    def choose(operations: Sequence[Operation], budget: int) -> set[str]:
        kept: set[str] = set()
        for o in sorted(operations, key=key):
            if only_saved and not o["saved"]:
                continue
            if nbytes(operations, kept | {o["name"]}) > budget:
                if stop:
                    break
                continue
            kept.add(o["name"])
        return kept

    return choose


def _all_not_kept(operations: Sequence[Operation], kept: set[str]) -> int:
    return sum(o["flops"] for o in operations if o["name"] not in kept)


def _saved_not_kept(operations: Sequence[Operation], kept: set[str]) -> int:
    return sum(o["flops"] for o in operations if o["saved"] and o["name"] not in kept)


def _direct(operations: Sequence[Operation], kept: set[str]) -> int:
    first = [o for o in operations if o["saved"] and o["name"] not in kept]
    names = {o["name"] for o in first} | {name for o in first for name in o["inputs"] if name not in kept}
    return sum(o["flops"] for o in operations if o["name"] in names)


def _whole_graph(operations: Sequence[Operation], kept: set[str]) -> int:
    names = again(operations, set())
    return sum(o["flops"] for o in operations if o["name"] in names and o["name"] not in kept)


def _count(operations: Sequence[Operation], kept: set[str]) -> int:
    return len(again(operations, kept))


def mistakes() -> dict[str, tuple[str, Callable[[Sequence[Operation], int], set[str]]]]:
    """Wrong ways to choose: text -> code, choice."""
    found: dict[str, Any] = {
        "the FLOPs of every operation that is not kept are counted: one whose result neither backward nor an operation "
        "that is computed again reads is not computed again": ("UNNEEDED", lambda o, b: _best(o, b, _all_not_kept)),
        "only the FLOPs of results that backward reads are counted: to compute one again its inputs must be there": (
            "NEEDED-INPUTS",
            lambda o, b: _best(o, b, _saved_not_kept),
        ),
        "inputs of what is computed again are counted, but not the inputs of those in turn": (
            "NEEDED-INPUTS",
            lambda o, b: _best(o, b, _direct),
        ),
        "what is kept is treated as if its inputs were needed, too: they are not, it is there": (
            "UNNEEDED",
            lambda o, b: _best(o, b, _whole_graph),
        ),
        "the fewest operations are computed again: their FLOPs count": ("FLOPS", lambda o, b: _best(o, b, _count)),
        "only results that backward reads are kept: another result may be worth keeping, as what is computed again "
        "reads it": ("SAVED-ONLY", lambda o, b: _best(o, b, only_saved=True)),
        "a choice of exactly the budget is taken for too large": ("TIGHT", lambda o, b: _best(o, b - 1)),
    }
    ways: dict[str, Callable[[Operation], float]] = {
        "most FLOPs per byte": lambda o: -o["flops"] / o["bytes"],
        "most FLOPs": lambda o: -o["flops"],
        "fewest bytes": lambda o: o["bytes"],
        "most bytes": lambda o: -o["bytes"],
    }
    for name, key in ways.items():
        for only_saved in (False, True):
            for stop in (False, True):
                text = f"operations are kept in turn, {name} first, as long as they fit"
                text += " (up to the first that does not)" * stop + ", if backward reads them" * only_saved
                found[f"{text}: that misses better choices, as one may need others"] = (
                    "GREEDY",
                    _greedy(key, only_saved, stop),
                )
    return found


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    for rank, (i, results) in enumerate(zip(given, got, strict=True)):
        scores = []
        for job, result in zip(i["jobs"], results, strict=True):
            names = [o["name"] for o in job["operations"]]
            if not isinstance(result, list) or any(name not in names for name in result):
                text = f"a list of names of operations is asked; rank {rank} returned {str(result)[:100]}"
                return Finding("DTL-VALUE-NONE" if result is None else "DTL-VALUE-TYPE", text, rank)
            if len(set(result)) < len(result):
                return Finding("DTL-VALUE-KEPT-TWICE", f"a name is there twice: {', '.join(result)}", rank)
            scores.append(_score(job, set(result)))
        right = [_score(job, _best(**job)) for job in i["jobs"]]
        if scores == right:
            continue
        if found := _known(i["jobs"], results, right):
            return Finding(found[0], found[1], rank)
        for job, result, one, best in zip(i["jobs"], results, scores, right, strict=True):
            if one != best:
                code, text = _told(job, set(result), one, best)
                return Finding(
                    code, f"rank {rank}, {len(job['operations'])} operations, budget {job['budget']:,}: {text}", rank
                )
    return None


def _score(job: dict[str, Any], kept: set[str]) -> tuple[int, int]:
    return flops(job["operations"], kept), nbytes(job["operations"], kept)


def _known(jobs: list[dict[str, Any]], results: list[Any], right: list[Any]) -> tuple[str, str] | None:
    """A mistake that leads to just these choices, in all jobs."""
    chosen = [set(result) for result in results]
    inverted = [{o["name"] for o in job["operations"]} - kept for job, kept in zip(jobs, chosen, strict=True)]
    if [_score(job, kept) for job, kept in zip(jobs, inverted, strict=True)] == right:
        return "DTL-VALUE-COMPLEMENT", "the names that are not kept are returned: those to keep are asked"
    if [set(again(job["operations"], _best(**job))) for job in jobs] == chosen:
        return "DTL-VALUE-COMPLEMENT", "the names to compute again are returned: those to keep are asked"
    for text, (code, choose) in mistakes().items():
        if all(choose(job["operations"], job["budget"]) == kept for job, kept in zip(jobs, chosen, strict=True)):
            return f"DTL-VALUE-{code}", text
    return None


def _told(job: dict[str, Any], kept: set[str], one: tuple[int, int], best: tuple[int, int]) -> tuple[str, str]:
    operations, wanted = job["operations"], _best(**job)
    text = f"kept are {', '.join(sorted(kept)) or 'none'}: {one[1]:,} bytes"
    if one[1] > job["budget"]:
        return "DTL-VALUE-OVER-BUDGET", f"{text}, which is over the budget"
    text += f", and {', '.join(again(operations, kept)) or 'nothing'} computed again: {one[0]:,} FLOPs. "
    code = "DTL-VALUE-MORE-BYTES" if one[0] == best[0] else "DTL-VALUE"
    return code, f"{text}Better: keep {', '.join(sorted(wanted)) or 'none'}, {best[1]:,} bytes, {best[0]:,} FLOPs"


CHECK = Check(
    on_rank,
    inputs,
    None,
    cases=_CASES,
    verify=verify,
    rules=[rules.most_messages("0")],
    seconds=20.0,
)
