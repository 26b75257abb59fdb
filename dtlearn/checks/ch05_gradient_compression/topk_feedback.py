"""ch05.topk_feedback: all ranks send the same elements first; then signs, other elements, residuals, steps, sizes."""

from __future__ import annotations

from typing import Any

import torch

from dtlearn.grading import Case, Check, Edit, Given
from dtlearn.runtime.record.record import Record

from ..sent import no_silent_rank, no_stores
from . import MAY_HELP, groups_of

SIZE = 8
# Per case: `k`; `n`, the size of the gradient; what is special in it, as `inputs` reads it.
CASES: dict[str, dict[str, Any]] = {
    "the same elements": {},
    "negative elements": {
        "says": "the k elements of largest magnitude are sent, with their signs: a negative one may be among them",
        "negative": True,
    },
    "other elements on other ranks": {
        "says": "each rank picks and sends its own k elements; what a rank does not send counts as 0 of that rank",
        "apart": True,
        "sizes": (2, 3, 4),
    },
    "a residual": {
        "says": "the residual belongs to the gradient: add it first, then pick, and keep of the sum what is not sent",
        "negative": True,
        "apart": True,
        "residual": True,
    },
    "three steps": {
        "says": "each call begins anew, and changes nothing that an earlier one returned: what it needs of earlier "
        "calls is in the residual that it is given, here half of the one returned before",
        "negative": True,
        "residual": True,
        "steps": 3,
    },
    "equal magnitudes": {
        "says": "where more than k elements are equally large, k of them are sent, and the others kept",
        "tied": True,
        "residual": True,
    },
    "a rank with zeros": {
        "says": "each rank sends k elements, also where they are 0: the others wait for k of each rank",
        "zeros": True,
        "residual": True,
    },
    "many elements": {
        "says": "the gradient may have any number of elements, here 300, the largest at its end",
        "n": 300,
    },
    "k above the size": {
        "says": "k may be more than the gradient has elements: then all are sent",
        "k": SIZE + 3,
        "residual": True,
    },
    "two groups": {
        "says": "with `group`, what is sent, and the mean, are those of its ranks",
        "apart": True,
        "pairs": True,
        "sizes": (4,),
    },
}
TOTAL, PICK, VALUES = "total = gradient + residual", "own = total.abs().topk(k).indices", "values = total[own]"
MEAN = "mean = torch.zeros_like(total).index_add_(0, places, sent) / num_ranks"
KEPT = "return mean, total.index_fill(0, own, 0)"
FIRST = "dist.get_process_group_ranks(group or dist.group.WORLD)[0]"
SAME = f"own = own.contiguous()\n    dist.broadcast(own, {FIRST}, group=group)"
EDITS = (
    Edit("the mean is the sum of what the ranks sent: divide it by the number of ranks",
         {MEAN: MEAN.replace(" / num_ranks", "")}),
    Edit("of an element that several ranks sent only one value counts: an assignment with repeated indices keeps one "
         "of them; add them up, as index_add_ does",
         {MEAN: "mean = torch.zeros_like(total)\n    mean[places.long()] = sent\n    mean /= num_ranks"}),
    Edit("each rank has the mean of its own elements only: those of the other ranks are missing",
         {MEAN: "mean = torch.zeros_like(total).index_fill_(0, own, 1) * total / num_ranks"}),
    Edit("your answer picks the largest elements, and not those of largest magnitude: compare absolute values",
         {PICK: "own = total.topk(k).indices"}),
    Edit("the magnitudes are sent, without their signs: topk(...).values of absolute values are absolute values",
         {VALUES: "values = total[own].abs()"}),
    Edit("an element is divided by the number of ranks that sent it: divide by the number of all ranks of the group",
         {MEAN: "count = torch.zeros_like(total).index_add_(0, places, torch.ones_like(sent))\n    "
                "mean = torch.zeros_like(total).index_add_(0, places, sent) / count.clamp(min=1)"}),
    Edit("values are added up by their place in the message, but the ranks picked other elements: gather the indices, "
         "too, and add up by index",
         {MEAN: "dist.all_reduce(values, group=group)\n    "
                "mean = torch.zeros_like(total).index_add_(0, own, values) / num_ranks"}),
    Edit("all ranks send the elements that the first rank picked: each picks its own",
         {PICK: f"{PICK}\n    {SAME}"}),
    Edit("the elements are picked by the gradient alone: pick the largest of gradient plus residual",
         {PICK: "own = gradient.abs().topk(k).indices"}),
    Edit("the gradient's own elements are sent, without the residual, which is then lost where it was sent",
         {VALUES: "values = gradient[own]"}),
    Edit("the residual that is given is not used: add it to the gradient first", {TOTAL: "total = gradient.clone()"}),
    Edit("your answer keeps a residual of its own from call to call, and does not use the one that it is given then",
         {TOTAL: f"residual = vars(topk_feedback).get('kept', residual)\n    {TOTAL}",
          KEPT: "topk_feedback.kept = total.index_fill(0, own, 0)\n    return mean, topk_feedback.kept.clone()"}),
    Edit("the old residual is lost where nothing was sent: keep gradient plus residual there, not the gradient alone",
         {KEPT: "return mean, gradient.index_fill(0, own, 0)"}),
    Edit("the new residual is what the mean of all ranks lacks: it is what this rank did not send of its own",
         {KEPT: "return mean, total - mean"}),
    Edit("the residual that is returned is the one that was given", {KEPT: "return mean, residual.clone()"}),
    Edit("the new residual still has what was sent: it would be sent again", {KEPT: "return mean, total"}),
    Edit("the new residual has what was sent, and 0 where nothing was: it is the other way round",
         {KEPT: "return mean, total - total.index_fill(0, own, 0)"}),
    Edit("nothing is kept: what is not sent is lost, and small elements never arrive",
         {KEPT: "return mean, torch.zeros_like(total)"}),
    Edit("the new residual lacks what other ranks sent, too: it is 0 only where this rank itself sent",
         {KEPT: "return mean, total.index_fill(0, places.long(), 0)"}),
    Edit("the new residual is rounded to 16 bits: what is lost so is never sent",
         {KEPT: "return mean, total.index_fill(0, own, 0).bfloat16().float()"}),
    Edit("the ranks have the mean of their residuals: each keeps its own",
         {KEPT: "kept = total.index_fill(0, own, 0) / num_ranks\n    dist.all_reduce(kept, group=group)\n    "
                "return mean, kept"}),
    Edit("values are rounded to 16 bits on the way (float16, bfloat16)", {VALUES: "values = total[own].bfloat16()",
         MEAN: MEAN.replace("sent)", "sent.float())")}),
    Edit("indices are sent in one byte each, where 256 becomes 0: send them as int32",
         {"own.int(), group": "(own % 256).int(), group"}),
    Edit("what earlier calls sent is still in the mean: begin each call with zeros",
         {MEAN: "vars(topk_feedback).setdefault('kept', torch.zeros_like(total))\n    "
                "mean = topk_feedback.kept.index_add_(0, places, sent) / num_ranks"}),
    Edit("the mean that an earlier call returned was changed by a later one: return a new tensor in each call",
         {MEAN: "vars(topk_feedback).setdefault('kept', torch.zeros_like(total))\n    "
                "mean = topk_feedback.kept.zero_().index_add_(0, places, sent).div_(num_ranks)"}),
    Edit("the elements of all ranks of the job are sent and averaged, not those of the group",
         {TOTAL: f"group = None\n    {TOTAL}"}),
    Edit("the sum over the group is divided by the number of all ranks, not of those in the group",
         {MEAN: MEAN.replace("num_ranks", "dist.get_world_size()")}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    """The k largest of gradient plus residual stand out by 1, so that rounding picks no other."""
    p, given = case.params, [dict[str, Any]() for _ in range(case.world_size)]
    n = p.get("n", SIZE)
    for number, ranks in enumerate(groups_of(case)):
        g = case.generator(number)
        same = torch.arange(n).flip(0) if "n" in p else torch.randperm(n, generator=g)
        for place, rank in enumerate(ranks):
            # The largest two of a rank and those of the next have one element in common.
            order = same.roll(-place) if "apart" in p else same
            total = torch.empty(n)
            total[order] = torch.tensor([3.0, 2, *[0.4] * (n - 2)]) + torch.rand(n, generator=g) * 0.5
            signs = torch.where(torch.arange(n) % 3 == 2, -1.0, 1.0)  # two small ones are negative
            signs[0] = -1.0 if "negative" in p else 1.0
            total[order] *= signs
            if "tied" in p:
                total = torch.randint(2, (n,), generator=g) * 4.0 - 2
            residual = torch.randn(n, generator=g) if "residual" in p else torch.zeros(n)
            residual = residual.round() if "tied" in p else residual
            gradient = -residual if "zeros" in p and place == len(ranks) - 1 else total - residual
            later = [torch.randn(n, generator=g) for _ in range(p.get("steps", 1) - 1)]
            own = {"gradient": gradient, "residual": residual, "k": p.get("k", 2), "later": later}
            given[rank] = {**own, "tied": "tied" in p, "groups": groups_of(case) if "pairs" in p else []}
    return given


def on_rank(answer: Any, gradient: Any, residual: Any, k: Any, later: Any, tied: Any, groups: Any) -> Any:
    from dtlearn.grading.on_rank.tools import own_group

    pairs: Any = []
    own = own_group(groups)
    for one in (gradient, *later):
        pair = answer(one, residual if not pairs else pairs[-1][1] / 2, k, own)
        if not isinstance(pair, tuple | list) or len(pair) != 2 or not all(isinstance(t, torch.Tensor) for t in pair):
            return {"it returns a pair of tensors": False}
        pairs.append(pair)
    if not tied:
        return {f"step {step}": {"mean": mean, "residual": kept} for step, (mean, kept) in enumerate(pairs, 1)}
    mean, kept = pairs[0]
    # Which of the equal elements were picked is the answer's choice: what all sent, and what all kept, is what all had.
    together = torch.stack([gradient + residual, kept])
    dist.all_reduce(together)  # type: ignore[name-defined]  # noqa: F821
    whole = torch.allclose(mean * world_size + together[1], together[0])  # type: ignore[name-defined]  # noqa: F821
    facts = {"elements kept": int(kept.count_nonzero()), "sent and kept together are what was given": whole}
    return {"step 1": facts}


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    """A mask of the largest elements of each rank, and the mean of what it lets through."""
    results: list[dict[str, Any]] = [{} for _ in given]
    if "tied" in case.params:
        facts = {"elements kept": SIZE - given[0]["k"], "sent and kept together are what was given": True}
        return [{"step 1": facts} for _ in given]
    for ranks in groups_of(case):
        residuals = [given[rank]["residual"] for rank in ranks]
        for step in range(case.params.get("steps", 1)):
            gradients = [[given[rank]["gradient"], *given[rank]["later"]][step] for rank in ranks]
            totals = [g + e for g, e in zip(gradients, residuals, strict=True)]
            masks = [t.abs().argsort(descending=True).argsort() < given[ranks[0]]["k"] for t in totals]
            mean = torch.stack([t * m for t, m in zip(totals, masks, strict=True)]).double().mean(0).float()
            for rank, t, m in zip(ranks, totals, masks, strict=True):
                results[rank][f"step {step + 1}"] = {"mean": mean, "residual": t * ~m}
            residuals = [t * ~m / 2 for t, m in zip(totals, masks, strict=True)]
    return results


def payload(case: Case, given: Given) -> int:
    """8 bytes for each element that a rank sends."""
    return 8 * min(int(given[0]["k"]), len(given[0]["gradient"]))


def why(case: Case, given: Given, record: Record) -> str:
    return f"{MAY_HELP}{case.says}" if case.says else ""


def example() -> Given:
    gradients, residuals = ([2.0, -3.0, 0.5], [1.0, 2.0, 1.0]), ([0.0, -1.0, 0.0], [4.0, 0.0, 0.0])
    return [
        {"gradient": torch.tensor(g), "residual": torch.tensor(e), "k": 1, "later": [], "tied": False, "groups": []}
        for g, e in zip(gradients, residuals, strict=True)
    ]


CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    example=example(),
    rules=[no_silent_rank(least_calls=lambda case, given: 1)],
    payload=payload,
    calls=lambda case: int(case.params.get("steps", 1)),
    why=why,
    reads=[no_stores],
)
