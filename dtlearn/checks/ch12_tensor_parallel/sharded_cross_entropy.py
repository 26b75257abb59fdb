"""ch12.sharded_cross_entropy: targets at all places, ignored ones, large and small logits, two calls, groups."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from dtlearn.grading import Case, Check, Edit, Finding, Given, Stress
from dtlearn.runtime.record.record import Record

from ..sent import no_silent_rank, no_stores
from . import MAY_HELP, SOME, at_least_one_call, groups_of, silent_backward

COLUMNS, SHAPE = 8, (2, 2)  # of a part of the logits, and of targets
PER_ROW = 6  # logits that a rank may send for each target
STABLE = (
    "exp() of large numbers is infinite, and of very negative ones 0: the largest logit of a row, of all ranks, has "
)
CASES: dict[str, dict[str, Any]] = {
    "targets in the middle of the parts": {},
    "targets at the borders of the parts": {
        "says": "the first and the last token of a part belong to its rank, and to no other: 0 <= local < V/t",
        "columns": (0, COLUMNS - 1),
    },
    "another gradient of the loss": {
        "says": "backward is given another gradient than 1, where the loss is scaled, and has to multiply by it",
        "upstream": -2.5,
    },
    "ignored targets": {
        "says": "a target of -100 counts neither in the loss nor in its divisor, and its logits have the gradient 0",
        "ignored": (0, 2),
    },
    "logits near 5,000": {"says": f"{STABLE}to be subtracted first", "offset": (5e3,)},
    "logits near -5,000": {"says": f"{STABLE}to be subtracted first, also a negative one", "offset": (-5e3,)},
    "rows of logits that are far apart": {
        "says": f"{STABLE}to be subtracted: each row has its own",
        "offset": (5e3, -5e3),
    },
    "logits that are part of longer rows": {
        "says": "logits and targets may be parts of longer rows (reshape, not view)",
        "longer": True,
    },
    "two calls before backward": {
        "says": "two losses are made before the first backward pass: each call keeps what its own needs (ctx)",
        "calls": 2,
    },
    "groups of fewer ranks": {
        "says": "the rank in the group, and sums over the group, count: other groups have other logits and targets",
        "groups": SOME,
    },
}
PLACE, APPLY = "dist.get_rank(group)", "loss: torch.Tensor = Loss.apply(logits)"
MAX, SUMS = "dist.all_reduce(largest, op=dist.ReduceOp.MAX, group=group)", "dist.all_reduce(sums, group=group)"
LARGEST, COLUMN = "largest = x.amax(-1)", "column = local.masked_fill(foreign, 0).unsqueeze(-1)"
GATHER, ZEROS = "shifted.gather(", "shifted.gather(-1, column).squeeze(-1).masked_fill(foreign, 0.0)"
LOSSES, MEAN, DIVISOR = "losses = sums[0].log() - sums[1]", "return losses[counts].mean()", " / counts.sum()"
OWN, SAVED = "own = (~foreign).to(softmax.dtype).unsqueeze(-1)", "(softmax,) = ctx.saved_tensors"
KEEP = "ctx.save_for_backward(exponentials / sums[0].unsqueeze(-1))"
RAW = {GATHER: "x.gather(", LOSSES: f"{LOSSES} + largest"}  # the target's logit is summed without the shift
IN_LOSS, IN_GRADIENT = (
    {ZEROS: ZEROS.removesuffix(".masked_fill(foreign, 0.0)")},
    {OWN: "own = torch.ones_like(softmax[..., :1])"},
)
CLAMP = {COLUMN: "column = local.clamp(0, num_columns - 1).unsqueeze(-1)"}
REST = {COLUMN: "column = (targets % num_columns).unsqueeze(-1)"}
OVER = "dist.get_world_size(group)"
ADDED = "and counted in the sum over the ranks: zeros belong there"
RIGHT, HALF = "the losses are right, but in the gradient", "dist.all_reduce(sums[0], group=group)"
EDITS = (
    Edit("each rank computes the loss of its own part of the vocabulary: neither the sums of exponentials nor the "
         "targets' logits are added up over the ranks", {MAX: "pass", SUMS: "pass"}),
    Edit("each rank computes the loss of its own part of the vocabulary, and these are averaged: add up exponentials, "
         "not losses",
         {MAX: "pass", SUMS: "pass",
          MEAN: f"loss = losses[counts].mean(); dist.all_reduce(loss, group=group); return loss / {OVER}"}),
    Edit("the sums of exponentials are those of each rank's own part: the softmax is over V tokens",
         {SUMS: "dist.all_reduce(sums[1], group=group)"}),
    Edit("the logit of the target is there on one rank only: the others have 0 for it, and nothing is added up",
         {SUMS: HALF}),
    Edit("each rank subtracts the largest logit of its own part, and then the sums of exponentials are added up: they "
         "have to be relative to one number", {MAX: "pass"}),
    Edit("each rank subtracts the largest logit of its own part, from the target's logit of another part too: all "
         "ranks have to subtract the same number", {MAX: "pass", GATHER: "x.gather(", LOSSES: f"{LOSSES} + largest"}),
    Edit(f"targets of other ranks are looked up as column 0 of the own part, {ADDED}", {**IN_LOSS, **IN_GRADIENT}),
    Edit(f"targets of other ranks are looked up as the first or last column (clamp), {ADDED}",
         {**CLAMP, **IN_LOSS, **IN_GRADIENT}),
    Edit(f"targets of other ranks are looked up as target % columns, {ADDED}", {**REST, **IN_LOSS, **IN_GRADIENT}),
    Edit("targets of other ranks are looked up as column 0 of the own part, in the loss", IN_LOSS),
    Edit(f"{RIGHT} 1 is subtracted at column 0 for targets of other ranks", IN_GRADIENT),
    Edit(f"{RIGHT} 1 is subtracted at the first or last column for targets of other ranks", {**CLAMP, **IN_GRADIENT}),
    Edit(f"{RIGHT} 1 is subtracted at target % columns for targets of other ranks", {**REST, **IN_GRADIENT}),
    Edit(f"{RIGHT} 1 is not subtracted at the target: it is the softmax alone",
         {"dx = softmax.scatter_add(-1, column, -own)": "dx = softmax"}),
    Edit(f"{RIGHT} the softmax is that of the rank's own part: divide by the sum over all ranks",
         {KEEP: "ctx.save_for_backward(exponentials / exponentials.sum(-1, keepdim=True))"}),
    Edit("the first token of each part counts as no target: its logit is missing in the loss",
         {"(local < 0)": "(local <= 0)"}),
    Edit("the last token of each part counts as no target: its logit is missing in the loss",
         {"(local >= num_columns)": "(local >= num_columns - 1)"}),
    Edit("the largest of the ranks' values for the target's logit is taken, relative to the largest logit: 0 of the "
         "other ranks is larger than a negative number; add them up",
         {SUMS: f"{HALF}; dist.all_reduce(sums[1], dist.ReduceOp.MAX, group=group)"}),
    Edit("the largest of the ranks' values for the target's logit is taken, and 0 of the other ranks is larger than a "
         "logit below 0: add them up",
         {SUMS: f"{HALF}; dist.all_reduce(sums[1], dist.ReduceOp.MAX, group=group)", **RAW}),
    Edit("ignored targets count, in the loss and in the divisor",
         {MEAN: "return losses.mean()", f"counts.unsqueeze(-1) * gradient{DIVISOR}": "gradient / counts.numel()"}),
    Edit("ignored targets count, in the loss and in the divisor; their gradients are 0",
         {MEAN: "return losses.mean()", DIVISOR: " / counts.numel()"}),
    Edit("ignored targets have the loss 0, and count in the divisor all the same, also in the gradient's",
         {MEAN: "return losses[counts].sum() / counts.numel()", DIVISOR: " / counts.numel()"}),
    Edit("ignored targets have the loss 0, and count in the divisor all the same (the gradient's is right)",
         {MEAN: "return losses[counts].sum() / counts.numel()"}),
    Edit(f"{RIGHT} ignored targets have theirs too: it should be 0",
         {"counts.unsqueeze(-1) * gradient": "gradient"}),
    Edit(f"{RIGHT} the divisor is the number of all targets, with those that are ignored",
         {DIVISOR: " / counts.numel()"}),
    Edit("the losses are added up: their mean is expected", {MEAN: "return losses[counts].sum()", DIVISOR: ""}),
    Edit("the loss is the mean, but the gradient is that of the sum: it is not divided", {DIVISOR: ""}),
    Edit("the losses are right, but the gradient is t times as large: each rank begins backward with the whole "
         "gradient, which must not be added up over the ranks again",
         {SAVED: f"{SAVED}; gradient = gradient.clone(); dist.all_reduce(gradient, group=group)"}),
    Edit("the losses are right, but the gradient is divided by the number of ranks", {DIVISOR: f"{DIVISOR} / {OVER}"}),
    Edit("the loss is divided by the number of ranks: with the sums it is the whole one on each rank",
         {APPLY: f"{APPLY} / {OVER}"}),
    Edit("the losses are right, but the gradient is that of a loss whose own gradient is 1: backward is given another "
         "one, where the loss is scaled, and has to multiply by it",
         {"counts.unsqueeze(-1) * gradient": "counts.unsqueeze(-1) * 1.0"}),
    Edit(f"{RIGHT} the column of the largest logit of each part is wrong: the maximum is a constant that cancels out "
         "over all ranks together, not on each; detach it",
         {"return dx * (": "dx = dx.scatter_add(-1, softmax.argmax(-1, keepdim=True), own - softmax.sum(-1, True))\n"
                           "            return dx * ("}),
    Edit("the losses are right, and no gradient reaches logits: what is returned has to be made of them under "
         "autograd, or by a torch.autograd.Function", {APPLY: f"{APPLY}.detach()"}),
    Edit("the losses are right, and the gradient of the call that came last, but not those of calls before it, whose "
         "backward passes come later: each call keeps what its own backward pass needs (ctx)",
         {KEEP: "sharded_cross_entropy.kept = exponentials / sums[0].unsqueeze(-1)",
          SAVED: "softmax = sharded_cross_entropy.kept"}),
    Edit("no largest logit is subtracted: exp() of large numbers is infinite, and of very negative ones 0",
         {LARGEST: f"{LARGEST} * 0", MAX: "pass"}),
    Edit("one largest logit is subtracted from all rows: where it is much larger than those of a row, exp() is 0",
         {LARGEST: "largest = x.amax().expand(x.shape[:-1]).contiguous()"}),
    Edit("the largest logit is compared with 0 too: where all are very negative, exp() is 0",
         {LARGEST: f"{LARGEST}.clamp(min=0)"}),
    Edit("the logits were changed, which are the caller's: work on a new tensor",
         {"shifted = x - largest.unsqueeze(-1)": "shifted = x.sub_(largest.unsqueeze(-1))"}),
    Edit("numbers are rounded to float32 on the way: keep the dtype of logits",
         {LARGEST: f"kept, x = x.dtype, x.float(); {LARGEST}", MEAN: f"{MEAN}.to(kept)"}),
    Edit("numbers are rounded to 16 bits on the way: keep the dtype of logits",
         {LARGEST: f"kept, x = x.dtype, x.bfloat16(); {LARGEST}", MEAN: f"{MEAN}.to(kept)"}),
    Edit("the first token of a part is computed from the rank in the world, not from the rank in the group",
         {PLACE: "dist.get_rank()"}),
    Edit("all ranks are added up, not those of the group",
         {MAX: MAX.replace(", group=group", ""), SUMS: "dist.all_reduce(sums)"}),
    Edit("the rank in the world and the sums over the world are used, not those of the group",
         {PLACE: "dist.get_rank()", MAX: MAX.replace(", group=group", ""), SUMS: "dist.all_reduce(sums)"}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    g, p = case.generator(), case.params
    given: Given = [{} for _ in range(case.world_size)]
    calls = range(p.get("calls", 1))
    for ranks in groups_of(case):
        t = len(ranks)
        own = torch.tensor([COLUMNS * r + c for r in range(t) for c in p.get("columns", (2, 5))])
        targets = [own[torch.randperm(2 * t, generator=g)].repeat(2)[:4] for _ in calls]
        for one in targets:
            one[list(p.get("ignored", ()))] = -100
        offset = torch.tensor(p.get("offset", (0.0,))).double().expand(2)[:, None, None]
        whole = [torch.randn(*SHAPE, COLUMNS * t, dtype=torch.float64, generator=g) * 1.5 + offset for _ in calls]
        for place, rank in enumerate(ranks):
            parts = [one.chunk(t, -1)[place].clone() for one in whole]
            given[rank] = {"logits": parts, "targets": [one.reshape(SHAPE) for one in targets]}
            given[rank] |= {"upstream": p.get("upstream", 1.0), "longer": "longer" in p}
            given[rank]["group"] = groups_of(case) if "groups" in p else []
    return given


def on_rank(answer: Any, logits: Any, targets: Any, group: Any = (), upstream: Any = 1.0, longer: Any = False) -> Any:
    from dtlearn.grading.on_rank.tools import own_group

    own, losses, leaves = own_group(group), [], []
    for x, target in zip(logits, targets, strict=True):
        if longer:  # logits of all but the last token, targets of all but the first, as they often are
            leaves.append(torch.cat([x, x[:, :1]], 1).requires_grad_())
            losses.append(answer(leaves[-1][:, :-1], torch.cat([target[:, :1], target], 1)[:, 1:], own))
        else:
            leaves.append(x.clone().requires_grad_())
            losses.append(answer(leaves[-1], target, own))
    if not all(isinstance(loss, torch.Tensor) for loss in losses):
        return {"loss": losses}
    kept = [loss.detach().clone() for loss in losses]
    for loss in losses:
        if loss.requires_grad and loss.dim() == 0:
            (loss * upstream).backward()
    gradients = [
        leaf.grad if leaf.grad is None else leaf.grad[:, : x.shape[1]] for leaf, x in zip(leaves, logits, strict=True)
    ]
    changed = any(not torch.equal(leaf.detach()[:, : x.shape[1]], x) for leaf, x in zip(leaves, logits, strict=True))
    return {"loss": kept, "gradient of logits": gradients, "logits are changed": changed}


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    """The cross entropy of the whole logits."""
    results: list[dict[str, Any]] = [{} for _ in given]
    for ranks in groups_of(case):
        parts = zip(*(given[rank]["logits"] for rank in ranks), strict=True)
        whole = [torch.cat(one, -1).requires_grad_() for one in parts]
        targets = given[ranks[0]]["targets"]
        losses = [F.cross_entropy(x.flatten(0, 1), y.flatten()) for x, y in zip(whole, targets, strict=True)]
        for loss in losses:
            (loss * given[ranks[0]]["upstream"]).backward()
        for place, rank in enumerate(ranks):
            gradients = [x.grad.chunk(len(ranks), -1)[place] for x in whole if x.grad is not None]
            results[rank] = {"loss": losses, "gradient of logits": gradients, "logits are changed": False}
    return results


def few_numbers(case: Case, given: Given, record: Record) -> Finding | None:
    """No rank sends anything like its logits."""
    for rank, own in enumerate(given):
        events = [event for event in record.select(rank=rank) if not event.receives]
        per_row = sum(event.nbytes for event in events) / sum(one.nbytes for one in own["targets"])
        if per_row > PER_ROW:
            largest = max(events, key=lambda event: event.nbytes)
            text = f"rank {rank} hands over {per_row:.1f} numbers for each target; line {largest.line} calls "
            text += (
                f"{largest.op} with {largest.nbytes:,} bytes. Its part has {COLUMNS} logits for each: the logits are "
            )
            text += "gathered, and 3 numbers suffice"
            return Finding("DTL-RULE-LOGITS-SENT", text, rank, largest.line or None)
    return None


def why(case: Case, given: Given, record: Record) -> str:
    text = "a target of another rank, and one of -100, has no column here; logits and targets may be parts of longer "
    return f"{MAY_HELP}{text}rows (reshape, not view)"


CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    example=[{"logits": [torch.tensor([[[0.0, 0.0], [5.0, 5.0]]])], "targets": [torch.tensor([[1, -100]])]}] * 2,
    why=why,
    calls=lambda case: case.params.get("calls", 1),
    payload=lambda case, given: given[0]["targets"][0].nbytes,  # int64, as long as float64
    rules=[
        few_numbers,
        silent_backward("with the sums of the forward pass each rank has all that its own gradient needs"),
        no_silent_rank(least_calls=at_least_one_call),
    ],
    reads=[no_stores],
    rtol=1e-9,
    atol=1e-9,
    stress=Stress(poison=True),
)
