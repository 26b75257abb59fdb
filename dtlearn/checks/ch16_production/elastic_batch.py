"""ch16.elastic_batch: a batch that the ranks share evenly; then short micro-batches, uneven ranks, too large a batch.

The model is linear, so that the rows of a gradient are few; the step is computed on one process with all rows at once.
"""

from __future__ import annotations

from typing import Any

import torch

from dtlearn.grading import Case, Check, Edit, Given
from dtlearn.runtime.record.record import Record

from ..sent import no_silent_rank, no_stores
from . import MAY_HELP

# Per case: `saved`, ranks, rows of a micro-batch and micro-batches of the saved job; `most`, max_accumulate;
# `rule`; `left`, whether there are gradients from before.
CASES: dict[str, dict[str, Any]] = {
    "full micro-batches": {"saved": (3, 2, 4)},
    "a short micro-batch": {
        "says": "a micro-batch may be shorter than the others: the batch, and so lr, stays as it was, and a mean loss "
        "counts by its rows",
        **{"saved": (5, 4, 1), "sizes": (2, 4)},
    },
    "rows left over": {
        "says": "where the ranks do not divide the batch, the first ones have a row more, and each counts by its rows",
        **{"saved": (7, 1, 1), "sizes": (2, 3, 4)},
    },
    "more ranks than rows": {
        "says": "a rank without rows has no gradient: it adds zeros, takes part in the sum, and steps with the others",
        **{"saved": (1, 2, 1), "sizes": (3, 4)},
    },
    "gradients from before": {
        "says": "what .grad holds is from before the save, and belongs to no row of this step",
        **{"saved": (3, 2, 4), "left": True},
    },
    "too many rows, linear": {
        "says": "a batch that does not fit into max_accumulate micro-batches is made smaller, and lr with it",
        **{"saved": (4, 2, 3), "most": 4, "sizes": (1, 2)},
    },
    "too many rows, square root": {
        "says": "by the square root rule lr falls with the root of the batch",
        **{"saved": (4, 2, 3), "most": 4, "rule": "sqrt", "sizes": (1, 2)},
    },
    "no such rule": {
        "says": "a rule that is neither linear nor sqrt needs a ValueError on all ranks, before anything else is done, "
        "also if the batch stays",
        **{"saved": (3, 2, 4), "rule": "cubic"},
    },
}  # fmt: skip
WEIGHT, REDUCE = "loss_of(part) * len(part) / batch", "dist.all_reduce(flat)"
BATCH, KEPT = "min(tuned, num_ranks * micro * max_accumulate)", 'num_ranks * micro * saved["accumulate"]'
RATE, POWER = '(batch / tuned) ** (1.0 if rule == "linear" else 0.5)', '(1.0 if rule == "linear" else 0.5)'
ROWS, SHARES = "list(range(first, first + own + (rank < more)))", "own, more = divmod(batch, num_ranks)"
STEPS, PART, ZEROS = "range(0, len(rows), micro)", "rows[start : start + micro]", "torch.zeros_like(parameter)"
FIRST, UPDATE = "min(rank, more)", "parameter -= lr * total.view_as(parameter)"
RULE = 'if rule not in ("linear", "sqrt"):'
EDITS = (
    Edit("each rank steps with the gradient of its own rows: add up over the ranks", {REDUCE: "pass"}),
    Edit("the mean losses of the micro-batches are added up: the mean over all rows is wanted",
         {WEIGHT: "loss_of(part)"}),
    Edit("the ranks' gradients are added up, each that of a mean over the rank's rows: divide by all rows of the batch",
         {WEIGHT: "loss_of(part) * len(part) / len(rows)"}),
    Edit("the gradient is divided by the number of ranks once too often",
         {REDUCE: f"{REDUCE}\n    flat /= num_ranks"}),
    Edit("the gradients of the ranks are averaged as if each had as many rows: a rank counts by its rows",
         {WEIGHT: "loss_of(part) * len(part) / len(rows) / num_ranks"}),
    Edit("a short micro-batch counts as much as a full one: it counts by its rows",
         {WEIGHT: "loss_of(part) * micro / batch"}),
    Edit("a rank's micro-batches are averaged, and then the ranks: both count by their rows",
         {WEIGHT: "loss_of(part) / len(range(0, len(rows), micro)) / num_ranks"}),
    Edit("each rank keeps its number of micro-batches: the global batch changes with the ranks, and lr with it; both "
         "can stay", {BATCH: KEPT}),
    Edit("each rank keeps its number of micro-batches, so that the global batch changes with the number of ranks",
         {BATCH: KEPT, RATE: "1.0"}),
    Edit("the learning rate is scaled by the number of ranks: it belongs to the batch, which stays",
         {RATE: f'(num_ranks / saved["ranks"]) ** {POWER}'}),
    Edit("the learning rate is scaled as if all micro-batches were full: it belongs to the rows of the batch",
         {RATE: f"(-(-batch // (num_ranks * micro)) * num_ranks * micro / tuned) ** {POWER}"}),
    Edit("the rows are dealt in turn: each rank has a run of rows", {ROWS: "list(range(rank, batch, num_ranks))"}),
    Edit("every rank has all rows", {ROWS: "list(range(batch))", WEIGHT: f"{WEIGHT} / num_ranks"}),
    Edit("one row at a time is taken: as many as micro_batch fit", {STEPS: "range(len(rows))",
         PART: "rows[start : start + 1]"}),
    Edit("all rows of a rank are taken at once: only micro_batch fit into its memory",
         {STEPS: "range(bool(rows))", PART: "rows"}),
    Edit("the rows that are left over are dropped: the first ranks have one more",
         {SHARES: "own, more = batch // num_ranks, 0", WEIGHT: "loss_of(part) * len(part) / (own * num_ranks or 1)"}),
    Edit("the rows that are left over go to the last ranks: the first ones have one more",
         {FIRST: "max(0, rank - num_ranks + more)", "(rank < more)": "(rank >= num_ranks - more)"}),
    Edit("each rank has the rows of a larger part, rounded up, and the last ones what remains: parts differ by a row",
         {FIRST: "0", SHARES: "own, more = -(-batch // num_ranks), 0",
          ROWS: "list(range(batch))[first : first + own]"}),
    Edit("a rank without rows does not step: its parameters are no longer those of the others",
         {UPDATE: "parameter -= lr * total.view_as(parameter) * bool(rows)"}),
    Edit("a rank without rows takes the last row again: it counts twice", {ROWS: f"{ROWS} or [batch - 1]"}),
    Edit("the gradients from before the save are added to those of this step",
         {ZEROS: f"{ZEROS} if parameter.grad is None else parameter.grad"}),
    Edit("max_accumulate is not looked at", {BATCH: "tuned"}),
    Edit("the batch is made smaller, and the learning rate stays", {RATE: "1.0"}),
    Edit("the learning rate rises as the batch falls: new batch divided by the old one",
         {RATE: f"(tuned / batch) ** {POWER}"}),
    Edit("both rules are the square root", {POWER: "0.5"}),
    Edit("both rules are linear", {POWER: "1.0"}),
    Edit("the two rules are the wrong way round", {POWER: '(1.0 if rule == "sqrt" else 0.5)'}),
    Edit("the gradient is divided by the rows of the old batch, of which only a part is taken",
         {WEIGHT: "loss_of(part) * len(part) / tuned"}),
    Edit("the scaled rate is returned, and the step made with the old one",
         {UPDATE: 'parameter -= saved["lr"] * total.view_as(parameter)'}),
    Edit("the step is made with the scaled rate, and the old one returned",
         {"return lr\n": 'return float(saved["lr"])\n'}),
    Edit("any rule is accepted", {RULE: "if not rule:"}),
    Edit("the rule is looked at when the step is made: refuse it before anything else",
         {RULE: "if not rule:", "return lr\n": f"{RULE}\n        raise ValueError(rule)\n    return lr\n"}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    p, g = case.params, case.generator()
    ranks, micro, accumulate = p["saved"]
    batch = ranks * micro * accumulate

    def numbers(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=g, dtype=torch.float64)

    saved = {"ranks": ranks, "micro_batch": micro, "accumulate": accumulate, "lr": 0.1 + 0.05 * abs(numbers(1).item())}
    left = [numbers(2, 3), numbers(2)] if "left" in p else [None, None]
    own = {
        "x": numbers(4 * batch, 3),
        "y": numbers(4 * batch, 2),  # more than the batch has
        "weights": [numbers(2, 3), numbers(2)],
        "left": left,
    }
    job = {"saved": saved, "max_accumulate": p.get("most", 24), "rule": p.get("rule", "linear")}
    return [{**own, **job}] * case.world_size


def on_rank(answer: Any, x: Any, y: Any, weights: Any, left: Any, saved: Any, max_accumulate: Any, rule: Any) -> Any:
    from dtlearn.grading.on_rank.tools import refusal

    parameters = [torch.nn.Parameter(value.clone()) for value in weights]
    for parameter, gradient in zip(parameters, left, strict=True):
        parameter.grad = None if gradient is None else gradient.clone()
    calls: list[list[int]] = []

    def loss_of(rows: Any) -> Any:
        calls.append([int(row) for row in rows])
        weight, bias = parameters
        return (x[calls[-1]] @ weight.T + bias - y[calls[-1]]).square().mean()

    if rule not in ("linear", "sqrt"):
        said = refusal(answer, list(parameters), loss_of, dict(saved), max_accumulate, rule)
        return {
            "raised": "a ValueError" if said.startswith("a ValueError") else said,
            "calls of loss_of before": len(calls),
            "parameters afterwards": [parameter.detach() for parameter in parameters],
        }
    lr = answer(list(parameters), loss_of, dict(saved), max_accumulate, rule)
    return {
        "rows": [row for rows in calls for row in rows],
        "each call has micro_batch rows or fewer": all(len(rows) <= saved["micro_batch"] for rows in calls),
        "calls of loss_of": len(calls),
        "learning rate": lr,
        "parameters": [parameter.detach() for parameter in parameters],
    }


def expected(case: Case, given: Given) -> list[Any]:
    """One process with all rows: a step with the gradient of the mean loss, by its formula."""
    p, own, n = case.params, given[0], case.world_size
    if own["rule"] not in ("linear", "sqrt"):
        return [{"raised": "a ValueError", "calls of loss_of before": 0, "parameters afterwards": own["weights"]}] * n
    ranks, micro, accumulate = p["saved"]
    tuned, room = ranks * micro * accumulate, n * micro * own["max_accumulate"]
    batch, lr = tuned, own["saved"]["lr"]
    if room < tuned:
        batch, lr = room, lr * {"linear": room / tuned, "sqrt": (room / tuned) ** 0.5}[own["rule"]]
    weight, bias = own["weights"]
    x, y = own["x"][:batch], own["y"][:batch]
    slope = 2 * (x @ weight.T + bias - y) / y.numel()  # (batch, 2), of the mean over rows and outputs
    after = [weight - lr * slope.T @ x, bias - lr * slope.sum(dim=0)]
    results: list[dict[str, Any]] = []
    for rows in torch.arange(batch).tensor_split(n):  # the first ones have one more
        calls = len(rows.split(micro)) if len(rows) else 0
        facts = {"rows": rows.tolist(), "each call has micro_batch rows or fewer": True, "calls of loss_of": calls}
        results.append({**facts, "learning rate": lr, "parameters": after})
    return results


def why(case: Case, given: Given, record: Record) -> str:
    begins = ".grad may be None when the step begins: put zeros there. All ranks take part in the sum over the ranks"
    return f"{MAY_HELP}{case.says or begins}"


def least_calls(case: Case, given: Given) -> int:
    return int(given[0]["rule"] in ("linear", "sqrt"))


EXAMPLE = {"x": [[k, 1.0, 0.0] for k in range(6)], "y": [[0.0, float(k)] for k in range(6)]}
CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    example=[
        {
            **{key: torch.tensor(rows, dtype=torch.float64) for key, rows in EXAMPLE.items()},
            "weights": [torch.zeros(2, 3, dtype=torch.float64), torch.zeros(2, dtype=torch.float64)],
            "left": [None, None],
            "saved": {"ranks": 3, "micro_batch": 2, "accumulate": 1, "lr": 0.3},
            "max_accumulate": 2,
            "rule": "linear",
        }
    ]
    * 2,
    rules=[no_silent_rank(least_calls=least_calls)],
    why=why,
    reads=[no_stores],
    rtol=1e-10,
    atol=1e-12,
)
