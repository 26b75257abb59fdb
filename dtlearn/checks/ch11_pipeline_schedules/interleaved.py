"""ch11.interleaved: the orders of all ranks of several jobs, made by one process. Sizes differ between gradings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dtlearn.grading import Case, Check, Finding, Given, rules
from dtlearn.runtime.record.record import Record

from . import MAY_HELP
from ._jobs import numbers, shuffled
from ._schedules import Action, as_tuples, is_order, problem, text_of

Job = dict[str, int]


def inputs(case: Case) -> Given:
    g = case.generator()
    number = numbers(g)

    sizes = [(2, 4, 2), (3, 3 * number(2, 4), 2), (4, 8, number(2, 4)), (number(2, 5), 0, number(3, 5)), (3, 3, 2)]
    sizes += [
        (1, number(2, 5), number(3, 6)),
        (2, 2, 4),
        (5, 10, 2),
        (4, 6, 2),
        (3, 3 * number(1, 4) + number(1, 3), 3),
        (4, 3, 2),
        (number(7, 10), 0, number(2, 7)),
        (3, 3 * number(6, 10), 2),
    ]
    jobs = [{"num_ranks": p, "num_microbatches": m or 2 * p, "chunks": v} for p, m, v in sizes]
    return shuffled(case, jobs, g)


def on_rank(answer: Any, jobs: Any) -> Any:
    notes: list[Any] = []
    for job in jobs:
        orders = []
        for rank in range(job["num_ranks"]):
            try:
                orders.append(answer(rank, job["num_ranks"], job["num_microbatches"], job["chunks"]))
            except Exception as error:
                if job["num_microbatches"] % job["num_ranks"] == 0:
                    raise
                orders.append("ValueError" if isinstance(error, ValueError) else type(error).__name__)
        notes.append(orders)
    return notes


def _order(
    r: int,
    p: int,
    m: int,
    v: int,
    *,
    size: int | None = None,
    warm: int | None = None,
    stage: Callable[[int], int] | None = None,
    turned: bool = True,
    again: bool = False,
    backward_first: bool = False,
) -> list[Action]:
    """The order of rank r, and what becomes of it by a mistake."""
    total, n = m * v, size or p
    where = stage or (lambda chunk: chunk * p + r)

    def action(i: int, op: str) -> Action:
        chunk = i // n % v
        chunk = v - 1 - chunk if op == "B" and turned else chunk
        return where(chunk), op, (0 if again else i // (n * v) * n) + i % n

    warm_up = max(0, min(2 * (p - r - 1) + (v - 1) * p if warm is None else warm, total))
    order = [action(i, "F") for i in range(warm_up)]
    for i in range(total - warm_up):
        pair = [action(warm_up + i, "F"), action(i, "B")]
        order += pair[::-1] if backward_first else pair
    return order + [action(i, "B") for i in range(total - warm_up, total)]


Way = Callable[[int, int, int, int], list[Action]]
_WAYS: tuple[tuple[str, str, Way], ...] = (
    (
        "OTHER-STAGE",
        "chunk c of rank r is taken for stage r v + c, its neighbour in the model: it is stage c p + r",
        lambda r, p, m, v: _order(r, p, m, v, stage=lambda chunk: r * v + chunk),
    ),
    (
        "BACKWARD-ORDER",
        "the backward passes begin with chunk 0: they go from the last chunk to the first",
        lambda r, p, m, v: _order(r, p, m, v, turned=False),
    ),
    (
        "GROUP-SIZE",
        "all m micro-batches go through a chunk before the next: p at a time do",
        lambda r, p, m, v: _order(r, p, m, v, size=m),
    ),
    (
        "GROUP-SIZE",
        "v micro-batches in a row go through each chunk: p do",
        lambda r, p, m, v: _order(r, p, m, v, size=v),
    ),
    (
        "GROUP-SIZE",
        "each micro-batch goes through all chunks by itself: p at a time go through one chunk",
        lambda r, p, m, v: _order(r, p, m, v, size=1),
    ),
    (
        "OTHER-MICROBATCH",
        "the micro-batches begin with 0 again after each p of them: then p, p + 1, ... come",
        lambda r, p, m, v: _order(r, p, m, v, again=True),
    ),
    (
        "WARM-UP",
        "the warm-up is p - r - 1, that of 1F1B with one stage a rank",
        lambda r, p, m, v: _order(r, p, m, v, warm=p - r - 1),
    ),
    (
        "WARM-UP",
        "the warm-up has p - r - 1 where 2 (p - r - 1) is asked, beside (v - 1) p",
        lambda r, p, m, v: _order(r, p, m, v, warm=p - r - 1 + (v - 1) * p),
    ),
    (
        "WARM-UP",
        "the warm-up has v p where (v - 1) p is asked",
        lambda r, p, m, v: _order(r, p, m, v, warm=2 * (p - r - 1) + v * p),
    ),
    (
        "WARM-UP",
        "the warm-up is 2 (p - r - 1): (v - 1) p is missing, the way of the first p micro-batches to the last chunk",
        lambda r, p, m, v: _order(r, p, m, v, warm=2 * (p - r - 1)),
    ),
    (
        "WARM-UP",
        "the warm-up is (v - 1) p on every rank: 2 (p - r - 1) is missing, which differs from rank to rank",
        lambda r, p, m, v: _order(r, p, m, v, warm=(v - 1) * p),
    ),
    (
        "WARM-UP",
        "the warm-up has one forward pass too many, 2 (p - r) - 1 beside (v - 1) p",
        lambda r, p, m, v: _order(r, p, m, v, warm=2 * (p - r) - 1 + (v - 1) * p),
    ),
    (
        "WARM-UP",
        "the warm-up has two forward passes too many, 2 (p - r) beside (v - 1) p: rank p - 1 has (v - 1) p",
        lambda r, p, m, v: _order(r, p, m, v, warm=2 * (p - r) + (v - 1) * p),
    ),
    (
        "WARM-UP",
        "the warm-up has one forward pass too few: the first backward pass comes after one forward pass more",
        lambda r, p, m, v: _order(r, p, m, v, warm=2 * (p - r - 1) + (v - 1) * p - 1),
    ),
    (
        "WARM-UP",
        "the warm-up of rank r is that of rank p - 1 - r: the first rank waits longest, and has most",
        lambda r, p, m, v: _order(r, p, m, v, warm=2 * r + (v - 1) * p),
    ),
    (
        "WARM-UP",
        "where m = p all forward passes come first: the warm-up is 2 (p - r - 1) + (v - 1) p there, too",
        lambda r, p, m, v: _order(r, p, m, v, warm=m * v if m == p else None),
    ),
    (
        "WARM-UP",
        "all forward passes come first, as with GPipe: the warm-up is 2 (p - r - 1) + (v - 1) p",
        lambda r, p, m, v: _order(r, p, m, v, warm=m * v),
    ),
    (
        "BACKWARD-FIRST",
        "after the warm-up a backward pass comes before the forward pass: it is the other way round",
        lambda r, p, m, v: _order(r, p, m, v, backward_first=True),
    ),
)


def _sizes(job: Job) -> tuple[int, int, int]:
    return job["num_ranks"], job["num_microbatches"], job["chunks"]


def _told(job: Job) -> str:
    return "p = {}, m = {}, v = {}".format(*_sizes(job))


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    jobs, made = given[0]["jobs"], got[0]
    wrong, fitting = [], []
    for job, orders in zip(jobs, made, strict=True):
        p, m, v = _sizes(job)
        if m % p:
            others = [(r, found) for r, found in enumerate(orders) if found != "ValueError"]
            if others:
                r, found = others[0]
                rank = f" on rank {r}" if len(others) < p else ""
                text = f"{_told(job)}: p does not divide m, and {found if isinstance(found, str) else 'nothing'} was "
                text += f"raised{rank}; it should be a ValueError"
                wrong.append((job, Finding("DTL-VALUE-NOT-DIVISIBLE", text)))
            continue
        for r, order in enumerate(orders):
            if why := is_order(order):
                code = "DTL-VALUE-NONE" if order is None else "DTL-VALUE-TYPE"
                return Finding(code, f"{_told(job)}, rank {r}: {why}")
        fitting.append((job, as_tuples(orders)))
    off = [(j, orders) for j, orders in fitting if orders != _all(_order, j)]
    for code, text, way in _WAYS:
        if off and all(orders == _all(way, job) for job, orders in fitting):
            return Finding(f"DTL-VALUE-{code}", f"{_told(off[0][0])}: {text}")
    for job, orders in off:
        p, m, v = _sizes(job)
        if found := problem(orders, [stage % p for stage in range(p * v)], "FB", m):
            short = 2 * (p - 1) + (v - 1) * p > m * v
            more = f". A rank has {m * v} forward passes, and the warm-up's formula may give more: it is all then"
            return Finding(found[0], f"{_told(job)}: {found[1]}{more if short else ''}")
    for job, orders in off:
        return _first_difference(job, orders)
    return wrong[0][1] if wrong else None


def _all(way: Callable[..., list[Action]], job: Job) -> list[list[Action]]:
    return [way(r, *_sizes(job)) for r in range(job["num_ranks"])]


def _first_difference(job: Job, orders: list[list[Action]]) -> Finding:
    """The first action that stands in another's place, of orders that are valid."""
    for r, (want, have) in enumerate(zip(_all(_order, job), orders, strict=True)):
        for k, (a, b) in enumerate(zip(want, have, strict=True)):
            if a != b:
                before = f"after {' '.join(map(text_of, want[max(0, k - 3) : k]))} " if k else "at first "
                text = f"{_told(job)}: {before}rank {r} does {text_of(b)}, and {text_of(a)} should be next"
                kinds = [next((i for i, x in enumerate(order) if x[1] == "B"), 0) for order in (want, have)]
                if kinds[0] != kinds[1]:
                    text += f". Before its first backward pass it does {kinds[1]} forward passes, and should {kinds[0]}"
                    return Finding("DTL-VALUE-WARM-UP", text)
                code = "DTL-VALUE-OTHER-MICROBATCH" if a[:2] == b[:2] else "DTL-VALUE-ORDER"
                return Finding(code, text)
    raise AssertionError("the orders are equal")


def why(case: Case, given: Given, record: Record) -> str:
    """Of a run that raised: what is special in it."""
    return f"{MAY_HELP}p may be 1, and the warm-up may be all that a rank has"


CHECK = Check(on_rank, inputs, None, verify=verify, why=why, rules=[rules.most_messages("0")])
