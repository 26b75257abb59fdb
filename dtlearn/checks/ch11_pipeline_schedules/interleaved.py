"""ch11.interleaved: the actions of every rank, as a text for each, in schedules that grow."""

from __future__ import annotations

from typing import Any

from dtlearn.grading import Case, Check, Edit, Given, rules
from dtlearn.runtime.record.record import Record

from . import MAY_HELP

# p, m and v of each case.
CASES: dict[str, dict[str, Any]] = {
    "2 ranks, 4 micro-batches, 2 chunks": {"sizes_of": (2, 4, 2)},
    "3 ranks, 6 micro-batches, 2 chunks": {
        "sizes_of": (3, 6, 2),
        "says": "there may be any number of ranks: p micro-batches at a time go through a chunk"},
    "2 ranks, 6 micro-batches, 3 chunks": {
        "sizes_of": (2, 6, 3), "says": "there may be any number of chunks: stage c p + r is chunk c of rank r"},
    "as many micro-batches as ranks": {
        "sizes_of": (3, 3, 2), "says": "a rank has m v forward passes: the warm-up is all of them, if it has no more"},
    "micro-batches that the ranks do not divide": {
        "sizes_of": (3, 7, 2), "says": "m is no multiple of p: a ValueError is expected, on every rank"},
}  # fmt: skip
CHUNK, TURN, ACTION = (
    "chunk = i // p % chunks",
    'chunk if op == "F" else chunks - 1 - chunk',
    "return chunk * p + rank, op, ",
)
MICROBATCH = "i // (p * chunks) * p + i % p"
WARM_UP, FORMULA = "min(2 * (p - rank - 1) + (chunks - 1) * p, total)", "2 * (p - rank - 1) + (chunks - 1) * p"
PAIR, REST, RAISES = (
    '[action(warm_up + i, "F"), action(i, "B")]',
    "range(total - warm_up, total)",
    "if num_microbatches % p:",
)


def groups(size: str) -> dict[str, str]:
    """An edit that runs another number of micro-batches in a row through each chunk."""
    return {CHUNK: f"n = {size}\n        chunk = i // n % chunks", MICROBATCH: "i // (n * chunks) * n + i % n"}


EDITS = (
    Edit("chunk c of rank r is taken for stage r v + c, its neighbour in the model: it is stage c p + r",
         {ACTION: "return rank * chunks + chunk, op, "}),
    Edit("the backward passes begin with chunk 0: they go from the last chunk to the first", {TURN: "chunk"}),
    Edit("the forward passes begin with the last chunk: they go from chunk 0 to the last",
         {TURN: 'chunks - 1 - chunk if op == "F" else chunk'}),
    *(Edit("all m micro-batches go through a chunk before the next: after p of them the first is back, and goes on",
           {**groups("num_microbatches"), **warm_up})
      for warm_up in ({}, {FORMULA: "2 * (p - rank - 1) + (chunks - 1) * num_microbatches"}, {WARM_UP: "total"})),
    Edit("v micro-batches in a row go through each chunk: p do",
         groups("chunks if num_microbatches % chunks == 0 else p")),
    Edit("each micro-batch goes through all chunks by itself: p at a time go through one chunk", groups("1")),
    Edit("the micro-batches begin with 0 again after each p of them: then p, p + 1, ... come", {MICROBATCH: "i % p"}),
    Edit("the backward passes of each p micro-batches begin with the last of them: they, too, begin with the first",
         {MICROBATCH: 'i // (p * chunks) * p + (i % p if op == "F" else p - 1 - i % p)'}),
    Edit("the warm-up is p - r - 1, that of 1F1B with one stage a rank", {FORMULA: "p - rank - 1"}),
    Edit("rank r has one forward pass more in its warm-up than rank r + 1: it needs two more, one because its gradient "
         "comes a pass later, one so that messages have time to travel",
         {FORMULA: "p - rank - 1 + (chunks - 1) * p"}),
    Edit("the warm-up has v p where (v - 1) p is expected", {FORMULA: "2 * (p - rank - 1) + chunks * p"}),
    Edit("the warm-up is 2 (p - r - 1): (v - 1) p is missing, the way of the first p micro-batches to the last chunk",
         {FORMULA: "2 * (p - rank - 1)"}),
    Edit("the warm-up is (v - 1) p on every rank: 2 (p - r - 1) is missing, which differs from rank to rank",
         {FORMULA: "(chunks - 1) * p"}),
    Edit("the warm-up has one forward pass too many, 2 (p - r) - 1 beside (v - 1) p",
         {FORMULA: "2 * (p - rank) - 1 + (chunks - 1) * p"}),
    Edit("the last rank's warm-up is v p - 1, so that it makes all forward passes of a round first: its first backward "
         "pass can follow pass (v - 1) p + 1, the first one in its last chunk",
         {FORMULA: "2 * (p - rank - 1) + chunks * p - 1"}),
    Edit("the warm-up has two forward passes too many, 2 (p - r) beside (v - 1) p: rank p - 1 has (v - 1) p",
         {FORMULA: "2 * (p - rank) + (chunks - 1) * p"}),
    Edit("the first backward pass comes one forward pass too early: the warm-up has one too few, or a backward pass "
         "follows it, and a forward pass should", {PAIR: '[action(i, "B"), action(warm_up + i, "F")]'}),
    Edit("the warm-up has p where (v - 1) p is expected, which is the same for 2 chunks only",
         {FORMULA: "2 * (p - rank - 1) + p"}),
    Edit("the warm-up of rank r is that of rank p - 1 - r: the first rank waits longest, and has most",
         {FORMULA: "2 * rank + (chunks - 1) * p"}),
    Edit("where m = p all forward passes come first: the warm-up is 2 (p - r - 1) + (v - 1) p there, too",
         {WARM_UP: f"total if num_microbatches == p else {WARM_UP}"}),
    Edit("all forward passes come first, as with GPipe: the warm-up is 2 (p - r - 1) + (v - 1) p", {WARM_UP: "total"}),
    Edit("the warm-up has more forward passes than a rank has: it is all of them, if the formula gives more",
         {WARM_UP: FORMULA, REST: "range(max(0, total - warm_up), total)"}),
    Edit("the backward passes that are left at the end are missing", {REST: "()"}),
    Edit("an action is expected to be a tuple, such as (2, 'F', 0); here it is a list, such as [2, 'F', 0]",
         {ACTION: "return [chunk * p + rank, op, ", f"{MICROBATCH}\n": f"{MICROBATCH}]\n"}),
    Edit("nothing is raised where m is no multiple of p: a ValueError is expected", {RAISES: "if False:"}),
    Edit("only rank 0 raises the ValueError where m is no multiple of p: each rank does",
         {RAISES: "if num_microbatches % p and not rank:"}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    p, m, v = case.params["sizes_of"]
    return [{"num_ranks": p, "num_microbatches": m, "chunks": v}]


def on_rank(answer: Any, num_ranks: Any, num_microbatches: Any, chunks: Any) -> Any:
    """The actions of each rank as one text."""
    from dtlearn.grading.on_rank.tools import refusal

    def name(action: Any) -> str:
        kinds = list(map(type, action)) if isinstance(action, tuple) else []
        return "".join(map(str, action)) if kinds == [int, str, int] else repr(action)[:80]

    def first_backward(actions: Any) -> int:
        return next((n for n, action in enumerate(actions) if "B" in action), len(actions))

    made: Any = {}
    for rank in range(num_ranks):
        if num_microbatches % num_ranks:
            said = refusal(answer, rank, num_ranks, num_microbatches, chunks)
            made[f"rank {rank}"] = "a ValueError" if said.startswith("a ValueError") else said
            continue
        actions = answer(rank, num_ranks, num_microbatches, chunks)
        if actions is None:
            return None
        is_list = isinstance(actions, list | tuple)
        parts = [tuple(a) for a in actions if isinstance(a, list | tuple)] if is_list else []
        made[f"forward passes before the first backward pass, rank {rank}"] = first_backward(parts)
        made[f"rank {rank}"] = " ".join(map(name, actions)) if is_list else repr(actions)[:80]
    return made


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    """The actions in groups of p micro-batches, each of which goes through all chunks, forward from the first on."""
    p, m, v = case.params["sizes_of"]
    if m % p:
        return [{f"rank {rank}": "a ValueError" for rank in range(p)}]
    made = {}
    for rank in range(p):
        starts = range(0, m, p)
        forward = [f"{c * p + rank}F{k}" for start in starts for c in range(v) for k in range(start, start + p)]
        backward = [f"{c * p + rank}B{k}" for start in starts for c in range(v)[::-1] for k in range(start, start + p)]
        warm_up = 2 * (p - rank - 1) + (v - 1) * p
        actions, forward = forward[:warm_up], forward[warm_up:]
        made[f"forward passes before the first backward pass, rank {rank}"] = min(warm_up + 1, m * v)
        for k, action in enumerate(backward):
            actions += [*forward[k : k + 1], action]
        made[f"rank {rank}"] = " ".join(actions)
    return [made]


def why(case: Case, given: Given, record: Record) -> str:
    """The hint for a run that raised: what is special about its case."""
    p, m, v = case.params["sizes_of"]
    return f"{MAY_HELP}this is with p = {p}, m = {m} and v = {v}: {case.says or 'm is a multiple of p here'}"


CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    example=[{"num_ranks": 2, "num_microbatches": 2, "chunks": 2}],
    why=why,
    rules=[rules.most_messages("0")],
)
