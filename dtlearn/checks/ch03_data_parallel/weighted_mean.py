"""ch03.weighted_mean: judged by the gradients that DDP's average makes of the answer's losses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from dtlearn.grading import Case, Check, Finding, Given, Mistake, compare
from dtlearn.runtime.record.record import Record

# Tokens of each rank. No total of the first 2, 3 or 4 is a multiple of that number: `//` shows.
_CASES: dict[str, dict[str, Any]] = {
    "3, 8, 2 and 1 tokens": {"counts": [3, 8, 2, 1]},
    "a rank without tokens": {"counts": [4, 0, 7, 2], "alone": 5},
    "all tokens on the last rank": {"counts": [0, 0, 0, 0], "last": 5},
}
_FEATURES = 3
_NOT_IN_PLACE = (
    "Return a new tensor: `a * b`, and not `a *= b`. A collective writes into its tensor, and a.detach() shares memory "
    "with a: clone it."
)
_PADDING = 2  # positions of each batch that are no tokens
_PARTS = {"has a graph", "gradient", "loss", "factor"}


def inputs(case: Case) -> Given:
    counts = list(case.params["counts"][: case.world_size])
    counts[-1] = case.params.get("last", counts[-1])
    if case.world_size == 1:
        counts = [case.params.get("alone", counts[0])]
    g, given = case.generator(), []
    weight = torch.randn(_FEATURES, generator=g)
    for rank, count in enumerate(counts):
        x = torch.randn(count + _PADDING, _FEATURES, generator=g) + 0.5 * rank
        y = torch.randn(count + _PADDING, generator=g) + 2.0 * rank
        given.append({"weight": weight, "x": x, "y": y, "count": count})
    return given


def on_rank(answer: Any, weight: torch.Tensor, x: torch.Tensor, y: torch.Tensor, count: int) -> Any:
    w = weight.clone().requires_grad_()
    is_token = torch.arange(len(y)) < count  # the rest is padding
    loss_sum = ((x @ w - y) ** 2 * is_token).sum()
    before = loss_sum.item()
    loss = answer(loss_sum, count)
    if loss_sum.item() != before:
        return f"{loss_sum.item():.6g} in place of {before:.6g}"
    if not isinstance(loss, torch.Tensor):
        return f"a value of type {type(loss).__name__}"
    if loss.shape != ():
        return f"a tensor of shape {tuple(loss.shape)}"
    if loss.requires_grad:
        loss.backward()
    gradient = torch.zeros_like(weight) if w.grad is None else w.grad
    number = loss.detach().float()
    # "factor": what loss_sum was multiplied by. A loss of its own has a graph too, but not the one that leads to w.
    return {"has a graph": w.grad is not None, "gradient": gradient, "loss": number, "factor": number / before}


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    n, total = case.world_size, sum(i["count"] for i in given)
    return [_averaged(given, lambda count: n / total)] * n


def _averaged(given: Given, factor: Callable[[int], float], value: float | None = None) -> dict[str, Any]:
    """What is averaged over the ranks when each returns loss_sum * factor(count); `value`: of the loss, if it is
    another one than its gradient belongs to."""
    n = len(given)
    gradient, loss = torch.zeros(_FEATURES, dtype=torch.float64), 0.0
    for i in given:
        x, y = (i[name][: i["count"]].double() for name in ("x", "y"))
        error, share = x @ i["weight"].double() - y, factor(i["count"]) / n
        gradient += share * 2 * (error @ x)
        loss += share * float((error**2).sum())
    value = loss if value is None else value
    return {"has a graph": True, "gradient": gradient.float(), "loss": torch.tensor(value, dtype=torch.float32)}


def mistakes(case: Case, given: Given) -> list[Mistake]:
    n, counts = case.world_size, [i["count"] for i in given]
    total, listed = sum(counts), ", ".join(map(str, counts))
    mean = float(_averaged(given, lambda count: n / total)["loss"])
    found: list[Mistake] = []

    def add(code: str, text: str, made: dict[str, Any]) -> None:
        found.append(Mistake(code, text, [made] * n))

    def scaled(factor: Callable[[int], float], value: float | None = None) -> dict[str, Any]:
        return _averaged(given, factor, value)

    users = sum(count > 0 for count in counts)
    alone = n > users == 1  # several mistakes give the same numbers here: other cases tell them apart
    if users < n:
        text = (
            f"a rank without tokens counts as if it had one: the loss is divided by {total + n - users}, and the ranks "
        )
        text += f"have {listed} tokens, {total} together"
        add("DTL-VALUE-COUNT", text, scaled(lambda count: n / (total + n - users)))
    if n != 2 != users:
        text = f"the loss is multiplied by 2, and there {'are' if n > 1 else 'is'} {n} rank{'s' * (n > 1)}: ask "
        add("DTL-VALUE-HARD-CODED", f"{text}dist.get_world_size()", scaled(lambda count: 2 / total))
    if 1 < users < n:
        text = f"the loss is multiplied by {users}: so many ranks have tokens, but DDP divides by all {n} ranks"
        # A fixed 2 gives the same where two ranks have tokens: other cases tell them apart.
        add("DTL-VALUE-USERS" if users != 2 else "DTL-VALUE", text, scaled(lambda count: users / total))
    for times in () if alone else (1, n):
        add(
            "DTL-VALUE-COUNT",
            f"divided by this rank's own number of tokens and by that of all, {total}: divide by that of all alone",
            scaled(lambda count, k=times: k / max(count, 1) / total),  # type: ignore[misc]
        )
    for times in {1, n}:
        if n > 1 and 0 < counts[0] < total:  # all of them: that would be no mistake
            text = f"every rank divides by rank 0's number of tokens, {counts[0]}; the ranks have {listed}"
            add("DTL-VALUE-COUNT", text, scaled(lambda count, k=times: k / counts[0]))  # type: ignore[misc]
    if n == 1:
        text = f"the loss is not divided by the number of tokens, {total}"
        # Or multiplied by it again: that shows where there are several ranks.
        return [*found, Mistake("DTL-VALUE", text, [scaled(lambda count: 1.0)])]
    for times in () if alone else (1, n):
        add(
            "DTL-VALUE-COUNT",
            f"loss_sum is multiplied by this rank's number of tokens, as if it were their mean: it is their sum, and "
            f"is only divided by the tokens of all, {total}",
            scaled(lambda count, k=times: k * count / total),  # type: ignore[misc]
        )
    for times in () if alone else (1, n):
        add(
            "DTL-VALUE-MEAN-OF-MEANS",
            f"the mean of the ranks' means: every rank counts the same, although they have {listed} tokens; divide "
            "by the tokens of all ranks, and multiply by N, by which DDP divides",
            scaled(lambda count, k=times: k / max(count, 1)),  # type: ignore[misc]
        )
    if alone:
        add("DTL-VALUE", f"the gradients are 1/{n} of the right ones", scaled(lambda count: 1 / total))
    else:
        add(
            "DTL-VALUE-FACTOR",
            f"the gradients are 1/{n} of the right ones: each rank divides by all {total} tokens, and then DDP divides "
            f"by {n} once more; multiply by the number of ranks",
            scaled(lambda count: 1 / total),
        )
    add(
        "DTL-VALUE-FACTOR",
        f"the gradients are {n} times the right ones: the loss is multiplied by {n}, and the count is an average "
        "over the ranks; do one or the other",
        scaled(lambda count: n * n / total),
    )
    reduced = "the loss itself was all-reduced: its number is the sum over all ranks, but its gradient is still this "
    for times in (1, n):
        why = f"rank's own, so after DDP's average it is 1/{n} of the right one" if times == 1 else "rank's own"
        add(
            "DTL-VALUE-REDUCED-LOSS",
            f"{reduced}{why}; all-reduce the count only",
            scaled(lambda count, k=times: k / total, times * mean),  # type: ignore[misc]
        )
    add(
        "DTL-VALUE-COUNT",
        f"the sum of a rank's own losses as it is: the number of tokens, {total} together, is nowhere",
        scaled(lambda count: 1.0),
    )
    add("DTL-VALUE-COUNT", f"the sum over all ranks, not divided by its {total} tokens", scaled(lambda count: n))
    most = max(counts)
    if n > 2 and counts[-1] and not alone:
        text = (
            f"divided by {n} times the last rank's {counts[-1]}, and not by {total}: are all tensors of the list that "
        )
        text += f"all_gather fills the same one, as in [t] * {n}?"
        add("DTL-VALUE-COUNT", text, scaled(lambda count: 1 / counts[-1]))
    # With 2 ranks 1 / most may be that as well: more ranks tell them apart.
    for times in () if alone else (n,) if n == 2 else (1, n):
        add(
            "DTL-VALUE-COUNT-MAX",
            f"divided by the largest count, {most}; the ranks have {listed} tokens, {total} together",
            scaled(lambda count, k=times: k / most),  # type: ignore[misc]
        )
    if total // n:
        add(
            "DTL-VALUE-FLOOR",
            f"{total} tokens on {n} ranks are taken for {total // n} each: `//` rounds {total / n:.4g} down; divide "
            "with `/`",
            scaled(lambda count: 1 / (total // n)),
        )
    return found


def _is_readable(one: Any) -> bool:
    """Whether this is what `on_rank` returns: a learner's process could send anything."""
    if not isinstance(one, dict) or set(one) != _PARTS or type(one["has a graph"]) is not bool:
        return False
    shapes = {"gradient": (_FEATURES,), "loss": (), "factor": ()}
    return all(
        isinstance(t := one[name], torch.Tensor) and t.shape == shape and t.dtype == torch.float32
        for name, shape in shapes.items()
    )


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    """Compares the averages over the ranks, as DDP makes them."""
    for rank, one in enumerate(got):
        if isinstance(one, str) and " in place of " in one:
            text = f"rank {rank} changed loss_sum, which has to stay as it is: afterwards it is {one}"
            return Finding("DTL-MUTATED", text, rank, None, _NOT_IN_PLACE)
        if isinstance(one, str):
            return Finding("DTL-VALUE-TYPE", f"rank {rank} should return a tensor of shape (); it returned {one}", rank)
        if not _is_readable(one):
            return Finding("DTL-RESULT", f"rank {rank} sent no readable result", rank)
    average: dict[str, Any] = {name: torch.stack([one[name] for one in got]).mean(0) for name in ("gradient", "loss")}
    without = [rank for rank, one in enumerate(got) if not one["has a graph"]]
    average["has a graph"] = not without
    if without:  # the values say nothing more
        text = "the returned loss has no graph, so that backward() reaches no parameter: it was made from a detached "
        text += "tensor or a number; only the count has to go over the network"
        if len(without) < case.world_size:
            text = (
                f"the loss of rank {without[0]} has no graph that leads to the parameters: also a rank without tokens "
            )
            text += "needs one made from loss_sum, as DDP's backward pass communicates on all ranks"
        return Finding("DTL-VALUE-NO-GRAPH", text, without[0])
    found = compare(_VALUES, case, given, expected(case, given), [average] * case.world_size)
    if found is None or found.code not in ("DTL-VALUE", "DTL-VALUE-NAN") or "the result" not in found.text:
        return found  # right, or described already
    return _by_rank(case, given, got) or found


def _by_rank(case: Case, given: Given, got: list[Any]) -> Finding | None:
    """What each rank multiplied its loss_sum by, where the averages over the ranks say nothing."""
    n, total = case.world_size, sum(i["count"] for i in given)
    infinite = [rank for rank, one in enumerate(got) if one["loss"].isinf()]
    if infinite:
        text = f"rank {infinite[0]} returned an infinite loss: it divided by 0, and the ranks have {total} tokens"
        return Finding("DTL-VALUE", text, infinite[0])
    empty = [rank for rank, one in enumerate(got) if given[rank]["count"] == 0 and one["loss"].isnan()]
    if empty:
        text = f"rank {empty[0]} has no tokens, and returned NaN: it divided by its own count, which is 0; divide by "
        return Finding("DTL-VALUE-NAN", f"{text}the tokens of all ranks, {total}", empty[0])
    factors = {rank: float(one["factor"]) for rank, one in enumerate(got) if given[rank]["count"]}
    wrong = {rank: factor for rank, factor in factors.items() if abs(factor * total / n - 1) > _VALUES.rtol}
    if not wrong:
        return None
    rank, factor = next(iter(wrong.items()))
    divisor = round(1 / factor) if factor else 0
    text = f"rank {rank} returned {factor:.4g} times its loss_sum"
    text += f" (a division by {divisor})" if divisor > 1 and abs(factor * divisor - 1) < _VALUES.rtol else ""
    text += f"; it should be {n} / {total} = {n / total:.4g} times "
    text += "on every rank, the number of ranks over the tokens of all"
    if len(wrong) == 1 < len(factors) or len({f"{f:.4g}" for f in factors.values()}) > 1:
        every = ", ".join(f"{f:.4g} on rank {r}" for r, f in factors.items())
        return Finding("DTL-VALUE-UNEQUAL", f"{text}; it is {every}: has every rank the same total?", rank)
    return Finding("DTL-VALUE", text, rank)


_VALUES = Check(on_rank, inputs, expected, cases=_CASES, mistakes=mistakes, rtol=1e-4)
CHECK = replace(_VALUES, expected=None, verify=verify)
