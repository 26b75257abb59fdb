"""ch02.predict_cost: seconds on a ring and on a tree, and where they are equal. No ranks are needed."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from dtlearn.grading import Case, Check, Finding, Given, Mistake, compare
from dtlearn.runtime.record.record import Record

_CASES: dict[str, dict[str, Any]] = {
    "4 processes on a laptop": {"num_ranks": 4, "nbytes": 1e6, "alpha": 40e-6, "beta": 1.5e9},
    "8 GPUs in a node": {"num_ranks": 8, "nbytes": 5e8, "alpha": 3e-6, "beta": 4.5e11},
    "6 machines": {"num_ranks": 6, "nbytes": 4e3, "alpha": 20e-6, "beta": 1.25e9},
    "384 GPUs": {"num_ranks": 384, "nbytes": 1e8, "alpha": 8e-6, "beta": 5e10},
    "2 ranks": {"num_ranks": 2, "nbytes": 1e4, "alpha": 1e-5, "beta": 1e10},
}


def inputs(case: Case) -> Given:
    return [dict(case.params)] * case.world_size


def on_rank(answer: Any, num_ranks: int, nbytes: float, alpha: float, beta: float) -> Any:
    return answer(num_ranks, nbytes, alpha, beta)


def expected(case: Case, given: Given) -> list[dict[str, float]]:
    return [_costs(**i) for i in given]


def _costs(
    num_ranks: int,
    nbytes: float,
    alpha: float,
    beta: float,
    ring_steps: int | None = None,
    tree_steps: float | None = None,
    ring_chunks: int | None = None,
) -> dict[str, float]:
    """Both costs and the crossover; the last three arguments are for mistakes."""
    ring_steps = 2 * (num_ranks - 1) if ring_steps is None else ring_steps
    tree_steps = 2 * math.ceil(math.log2(num_ranks)) if tree_steps is None else tree_steps
    share = ring_steps / (ring_chunks or num_ranks)
    gain = tree_steps - share
    return {
        "ring": ring_steps * alpha + share * nbytes / beta,
        "tree": tree_steps * (alpha + nbytes / beta),
        "crossover": (ring_steps - tree_steps) * alpha * beta / gain if gain > 0 else math.inf,
    }


def mistakes(case: Case, given: Given) -> list[Mistake]:
    n, size, alpha, beta = (given[0][name] for name in ("num_ranks", "nbytes", "alpha", "beta"))
    right, depth = _costs(**given[0]), math.ceil(math.log2(n))
    described = [
        (
            "DTL-VALUE-HALF-RING",
            f"the ring has {n - 1} steps here, those of the reduce-scatter; the all-gather takes {n - 1} more",
            {"ring_steps": n - 1},
        ),
        (
            "DTL-VALUE-HALF-TREE",
            f"the tree has {depth} steps here, those of the broadcast; the reduction before it takes {depth} more",
            {"tree_steps": depth},
        ),
        (
            "DTL-VALUE-ROUND",
            f"log2({n}) = {math.log2(n):.2f} is not rounded up: there is no part of a step",
            {"tree_steps": 2 * math.log2(n)},
        ),
        (
            "DTL-VALUE-STEPS",
            f"the ring sends the tensor twice here, 2 nbytes / beta; its {2 * (n - 1)} steps of 1/{n} are "
            f"{2 * (n - 1)}/{n} of it",
            {"ring_chunks": n - 1},
        ),
        (
            "DTL-VALUE-WHOLE-TENSOR",
            f"each step of the ring sends the whole tensor here; a step sends one chunk, 1/{n} of it",
            {"ring_chunks": 1},
        ),
        (
            "DTL-VALUE-STEPS",
            f"the ring has 2 x {n} steps here; each half has {n - 1}",
            {"ring_steps": 2 * n},
        ),
        (
            "DTL-VALUE-ROUND",
            f"the tree has 2 x {depth + 1} steps here; log2({n}) is {math.log2(n):.4g}, rounded up {depth}",
            {"tree_steps": 2 * (depth + 1)},
        ),
        (
            "DTL-VALUE-ROUND",
            f"the tree has 2 x {depth - 1} steps here; log2({n}) is {math.log2(n):.4g}, rounded up {depth}: is it "
            "rounded down, or another logarithm?",
            {"tree_steps": 2 * (depth - 1)},
        ),
    ]
    halves = (
        "ring and tree are half of the right ones: on the ring an all-reduce is two journeys of N - 1 steps, on the "
    )
    halves += "tree one up and one down"
    described.append(("DTL-VALUE-HALVES", halves, {"ring_steps": n - 1, "tree_steps": depth}))
    found, others = [], []  # the others at the end: at some N they are what a mistake of another kind gives
    for code, text, change in described:
        wrong = _costs(**given[0], **change)
        for keys in (("ring", "tree", "crossover"), ("ring", "tree")):
            found.append(Mistake(code, text, [{k: wrong[k] if k in keys else right[k] for k in right}]))
        if not math.isfinite(wrong["crossover"]):
            continue
        text = f"the times are right, but the crossover is that of other times: {text}"
        others.append(Mistake("DTL-VALUE-CROSSOVER", text, [{**right, "crossover": wrong["crossover"]}]))
    for code, text, change in (
        (
            "DTL-VALUE-WHOLE-TENSOR",
            "the bytes of the tree count once here; in each of its steps the whole tensor is sent",
            {"tree": 2 * depth * alpha + size / beta},
        ),
        (
            "DTL-VALUE-ROUND",
            "the chunk of the ring is rounded down to whole bytes here (//?); divide with /",
            {"ring": 2 * (n - 1) * (alpha + size // n / beta)},
        ),
        (
            "DTL-VALUE-CROSSOVER",
            "the times are right; the crossover is 0 here, as if the ring were never the slower one: for few bytes its "
            f"{2 * (n - 1)} steps take longer than the {2 * depth} of the tree",
            {"crossover": 0.0},
        ),
        (
            "DTL-VALUE-CROSSOVER",
            "the times are right; the crossover has the wrong sign",
            {"crossover": -right["crossover"]},
        ),
    ):
        found.append(Mistake(code, text, [{**right, **change}]))
    once = {
        "ring": right["ring"] - (2 * (n - 1) - 1) * alpha,
        "tree": right["tree"] - (2 * depth - 1) * alpha,
        "crossover": right["crossover"],
    }
    text = "alpha counts once here; each step is a message of its own and takes it again"
    found += [Mistake("DTL-VALUE-LATENCY", text, [{**once, "crossover": c}]) for c in (0.0, right["crossover"])]
    text = "the times are right; the crossover leaves out that the ring takes time for its bytes too: set the two equal"
    bare = 2 * (n - 1 - depth) * alpha * beta
    for crossover in (bare, bare / (2 * depth)):
        found.append(Mistake("DTL-VALUE-CROSSOVER", text, [{**right, "crossover": crossover}]))
    for factor, unit in ((1e3, "milliseconds"), (1e6, "microseconds"), (1e9, "nanoseconds"), (1e-6, "")):
        text = f"ring and tree are {factor:g} times the right ones: " + (
            f"{unit}? " if unit else "divided by a million? "
        )
        text += "The times are asked in seconds, and alpha is in seconds already"
        scaled = {key: right[key] * factor for key in ("ring", "tree")}
        for crossover in (right["crossover"], right["crossover"] * factor):
            found.append(Mistake("DTL-VALUE-SECONDS", text, [{**scaled, "crossover": crossover}]))
    bits = _costs(n, 8 * size, alpha, beta)
    text = "the bytes are multiplied by 8 as if beta were bits per second; it is bytes per second"
    for crossover in (right["crossover"], right["crossover"] / 8):
        found.append(Mistake("DTL-VALUE-UNIT", text, [{**bits, "crossover": crossover}]))
    times = _costs(n, size, alpha, 1 / beta)
    found += [
        Mistake("DTL-VALUE-UNIT", "the bytes are multiplied by beta; it is bytes per second: divide", [times]),
        Mistake(
            "DTL-VALUE-UNIT",
            "the bytes are multiplied by beta; it is bytes per second: divide",
            [{**times, "crossover": right["crossover"]}],
        ),
        Mistake(
            "DTL-VALUE-CROSSOVER",
            "the times are right; the crossover is upside down: multiply alpha by beta to get bytes",
            [{**right, "crossover": right["crossover"] / beta**2 if beta else 0.0}],
        ),
    ]
    return found + others


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    """Compares. Where nothing describes all three numbers, the times alone: a crossover follows from them."""
    right = expected(case, given)
    found = compare(_VALUES, case, given, right, got)
    if found is None or found.code != "DTL-VALUE" or not isinstance(got[0], dict):
        return found
    times = [{**got[0], "crossover": right[0]["crossover"]}]
    return compare(_VALUES, case, given, right, times) or found


# The crossover of a formula that is upside down is tiny, and not 0: so the absolute tolerance is tinier still.
_VALUES = Check(on_rank, inputs, expected, cases=_CASES, mistakes=mistakes, rtol=1e-6, atol=1e-18)
CHECK = replace(_VALUES, expected=None, verify=verify)
