"""ch03.weighted_mean: the gradients of the answer's losses, with unequal numbers of tokens, and with none on a rank."""

from __future__ import annotations

from typing import Any

import torch

from dtlearn.grading import Case, Check, Edit, Finding, Given
from dtlearn.runtime.record.record import Record

# Tokens of each rank. No total of the first 2, 3 or 4 is a multiple of that number: `//` shows. `alone`: of one rank.
CASES: dict[str, dict[str, Any]] = {
    "ranks with 3, 8, 2 and 1 tokens": {
        "says": "each loss_sum times the number of ranks, over the tokens of all ranks: that is what every rank "
        "returns",
        "counts": [3, 8, 2, 1],
        "sizes": (2, 3, 4),
    },
    "a rank without tokens": {
        "says": "a rank without tokens takes part all the same: its loss_sum is 0, and has a graph",
        "counts": [4, 0, 7, 2],
        "alone": 5,
    },
}
N, SUM = "dist.get_world_size()", "dist.all_reduce(num_tokens)"
RETURN = "return loss_sum * dist.get_world_size() / num_tokens"
MAX = "dist.all_reduce(num_tokens, dist.ReduceOp.MAX)"
OF_0 = "every rank divides by rank 0's number of tokens: divide by that of all ranks"
OF_MAX = "divided by the largest of the ranks' numbers of tokens: divide by their sum"
MEANS = (
    "the mean of the ranks' means: every rank counts the same, although they have different numbers of tokens; "
    "divide by the tokens of all ranks, and multiply by N, by which DDP divides"
)
# The special ones first: of two that lead to the same values the first one names them.
EDITS = (
    Edit("the loss of a rank without tokens has no graph that leads to the parameters: it needs one made from "
         "loss_sum, as DDP's backward pass communicates on all ranks",
         {RETURN: f"{RETURN} if count else torch.tensor(0.0)"}),
    Edit("a rank without tokens returns NaN: it divides by its own count, which is 0; divide by the tokens of all "
         "ranks",
         {RETURN: f"return loss_sum / count * count * {N} / num_tokens"}),
    Edit("a rank without tokens counts as if it had one", {"torch.tensor(count)": "torch.tensor(max(count, 1))"}),
    Edit("the loss is multiplied by the number of ranks that have tokens: DDP divides by that of all ranks",
         {"torch.tensor(count)": "torch.tensor([count, count > 0])",
          RETURN: "return loss_sum * num_tokens[1] / num_tokens[0]"}),
    Edit("the loss is multiplied by 2, however many ranks there are: ask dist.get_world_size()", {N: "2"}),
    Edit("divided by N times the last rank's number of tokens: are all tensors of the list that all_gather fills the "
         "same one, as in [t] * N?",
         {SUM: f"counts = [torch.tensor(0)] * {N}; dist.all_gather(counts, num_tokens); num_tokens = sum(counts)"}),
    Edit("the number of tokens of all ranks is divided by that of ranks and rounded down, as `//` does: divide with "
         "`/`",
         {RETURN: f"return loss_sum / (num_tokens // {N})"}),
    Edit(OF_0, {SUM: "dist.broadcast(num_tokens, 0)"}),
    Edit(OF_0, {SUM: "dist.broadcast(num_tokens, 0)", RETURN: "return loss_sum / num_tokens"}),
    Edit(OF_MAX, {SUM: MAX}),
    Edit(OF_MAX, {SUM: MAX, RETURN: "return loss_sum / num_tokens"}),
    Edit("divided by this rank's own number of tokens and by that of all ranks: divide by that of all alone",
         {RETURN: f"return loss_sum / max(count, 1) * {N} / num_tokens"}),
    Edit("loss_sum is multiplied by this rank's number of tokens, as if it were their mean: it is their sum, and is "
         "only divided by the tokens of all ranks", {RETURN: f"return loss_sum * count * {N} / num_tokens"}),
    Edit(MEANS, {RETURN: "return loss_sum / max(count, 1)"}),
    Edit(MEANS, {RETURN: f"return loss_sum * {N} / max(count, 1)"}),
    Edit("the gradients are 1/N of the right ones: each rank divides by the tokens of all ranks, and then DDP divides "
         "by N once more; multiply by the number of ranks", {RETURN: "return loss_sum / num_tokens"}),
    Edit("the gradients are N times the right ones: the loss is multiplied by N, and the count is an average over the "
         "ranks; do one or the other", {RETURN: f"return loss_sum * {N} / (num_tokens / {N})"}),
    Edit("the loss itself was all-reduced: its number is the sum over all ranks, but its gradient is still this rank's "
         "own, so after DDP's average it is 1/N of the right one; all-reduce the count only",
         {RETURN: "total = loss_sum * 1.0; dist.all_reduce(total); return total / num_tokens"}),
    Edit("the sum of a rank's own losses as it is: the number of tokens of all ranks is nowhere",
         {RETURN: "return loss_sum"}),
    Edit("the sum over all ranks, not divided by the number of their tokens", {RETURN: f"return loss_sum * {N}"}),
    Edit("the returned loss has no graph, so that backward() reaches no parameter: it was made from a detached tensor "
         "or a number; only the count has to go over the network", {RETURN: RETURN.replace("sum", "sum.detach()")}),
    Edit("loss_sum was changed: return a new tensor, `a * b`, and not `a *= b`; a collective writes into its tensor, "
         "and a.detach() shares memory with a, so clone it", {RETURN: f"return loss_sum.mul_({N}).div_(num_tokens)"}),
)  # fmt: skip


class AnyNumber(float):
    """Equal to every number, not to NaN: of the ranks' losses only the mean is known, see `verify`."""

    __hash__ = float.__hash__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, float) and other == other


def inputs(case: Case) -> Given:
    counts = case.params["counts"][: case.world_size] if case.world_size > 1 else [case.params["alone"]]
    g, given = case.generator(), []
    weight = torch.randn(3, generator=g)
    for rank, count in enumerate(counts):
        x, y = torch.randn(count, 3, generator=g) + 0.5 * rank, torch.randn(count, generator=g) + 2.0 * rank
        given.append({"weight": weight, "x": x, "y": y, "count": count})
    return given


def on_rank(answer: Any, weight: Any, x: Any, y: Any, count: int) -> Any:
    w = weight.clone().requires_grad_()
    loss_sum = ((x @ w - y) ** 2).sum()
    before = loss_sum.item()
    loss = answer(loss_sum, count)
    is_tensor = isinstance(loss, torch.Tensor)
    returned = f"a tensor of shape {tuple(loss.shape)}" if is_tensor else f"a value of type {type(loss).__name__}"
    kept = loss_sum.item() == before
    if kept and is_tensor and loss.shape == () and loss.requires_grad:
        loss.backward()
    return {
        "returned": returned,
        "loss_sum left alone": kept,
        "a graph that leads to the weight": w.grad is not None,
        "gradient": torch.zeros_like(w) if w.grad is None else w.grad,
        "loss": 0.0 if w.grad is None else loss.item(),
    }


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    """DDP's average of these gradients is that of the mean over all tokens, whatever the data of the ranks are."""
    total, facts = sum(own["count"] for own in given), {"returned": "a tensor of shape ()", "loss_sum left alone": True}
    results = []
    for own in given:
        x, error = own["x"].double(), own["x"].double() @ own["weight"].double() - own["y"].double()
        gradient = (2 * (error @ x) * case.world_size / total).float()
        results.append({**facts, "a graph that leads to the weight": True, "gradient": gradient, "loss": AnyNumber()})
    return results


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    """The mean of the returned losses."""
    errors = [own["x"].double() @ own["weight"].double() - own["y"].double() for own in given]
    right = float(torch.cat(errors).square().mean())
    mean = sum(one["loss"] for one in got) / case.world_size
    if abs(mean / right - 1) < 1e-4:
        return None
    text = (
        f"the gradients are right, but the average of the returned losses is {mean:.6g}: the mean over all tokens is "
    )
    return Finding("DTL-VALUE", f"{text}{right:.6g}", 0)


def example(loss_sum: float, count: int) -> dict[str, Any]:
    y = torch.full((count,), loss_sum / count).sqrt()
    return {"weight": torch.zeros(1), "x": torch.zeros(count, 1), "y": y, "count": count}


CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    verify=verify,
    rtol=1e-4,
    atol=3e-5,
    example=[example(6.0, 3), example(10.0, 1)],
)
