"""ch03.bug_hunt: a training loop, each of its three bugs in a case that shows this one only, and all together.

The order of the samples is judged by the parameters: a program may read the data set when and as often as it likes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import mse_loss
from torch.nn.utils import clip_grad_norm_
from torch.utils.data import DistributedSampler

from dtlearn.grading import Case, Check, Edit, Given

SAMPLES, BATCH, LR, FEATURES, NO_LIMIT, NEVER = 24, 2, 0.01, 3, 1e9, -1.0
END = 2  # the epoch after which training ends, where it ends early
EPOCH = (
    "the parameters after training are others: the steps of each epoch go through all samples in the order of torch's "
    "DistributedSampler with seed 0 for that epoch"
)
# `look`: what is compared. `ends`: the target is one that training reaches.
CASES: dict[str, dict[str, Any]] = {
    "the order of the samples": {"says": EPOCH, "epochs": 3, "look": ["parameters"]},
    "long gradients": {
        "says": "a mean gradient that is longer than max_norm is scaled down to max_norm, before the step",
        "epochs": 1,
        "max_norm": 0.5,
        "look": ["parameters"],
    },
    "the validation loss": {
        "says": "the loss of each epoch is the mean over the validation data of all ranks, on every rank",
        "epochs": 1,
        "look": ["losses"],
    },
    "an early end": {
        "says": "training ends after the first epoch whose mean validation loss is below target, on all ranks",
        "epochs": 5,
        "max_norm": 0.5,
        "ends": True,
        "look": ["losses", "parameters"],
    },
}
N = "dist.get_world_size()"
START = """without its three bugs
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    for parameter in model.parameters():
        dist.broadcast(parameter.detach(), src=0)
"""
SAMPLER = """sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=batch_size, sampler=sampler)
    losses: list[float] = []
    for epoch"""
SET, SHARED, MEAN = "sampler.set_epoch(epoch)", "dist.all_reduce(loss)", f"loss.item() / {N}"
BACKWARD, CLIP = "mse_loss(model(x), y).backward()", "clip_grad_norm_(model.parameters(), max_norm)"
STEP = f"{BACKWARD}\n            for parameter"
DIVIDED = f"parameter.grad /= {N}"
CLIPPED = f"{DIVIDED}\n            {CLIP}"
NOTED = f"losses.append({MEAN})\n        if losses[-1] < target:"
ENDS = f"own = loss.clone(); dist.all_reduce(own, dist.ReduceOp.{{}}); {SHARED}"
# The special ones first: of two that lead to the same values the first one names them.
EDITS = (
    Edit("training ends when one rank's own loss is below the target; their mean decides",
         {SHARED: ENDS.format("MIN"), "losses[-1] < target:\n            break\n    return losses\n    # END":
          "own < target:\n            break\n    return losses\n    # END"}),
    Edit("training ends when every rank's own loss is below the target; their mean decides",
         {SHARED: ENDS.format("MAX"), "losses[-1] < target:\n            break\n    return losses\n    # END":
          "own < target:\n            break\n    return losses\n    # END"}),
    Edit("the loss that ends the training is missing among those returned: append it before the `break`",
         {NOTED: f"{NOTED}\n            losses.pop()"}),
    Edit("each rank returns the loss of its own validation data, and not the mean of all: if it also goes by that, one "
         "day one of them ends and the others wait for it",
         {SHARED: f"own = loss.item(); {SHARED}", NOTED: f"losses.append(own)\n        if {MEAN} < target:"}),
    Edit("the loss is that of rank 0's validation data: the other ranks' do not count",
         {SHARED: "dist.broadcast(loss, 0)", MEAN: "loss.item()"}),
    Edit("the loss is the largest of the ranks' losses (MAX): their mean is expected",
         {SHARED: "dist.all_reduce(loss, dist.ReduceOp.MAX)", MEAN: "loss.item()"}),
    Edit("the loss is the sum of the ranks' losses: divide it by their number", {MEAN: "loss.item()"}),
    Edit("the sum of the ranks' losses is divided by 2, however many ranks there are: ask dist.get_world_size()",
         {MEAN: "loss.item() / 2"}),
    Edit("nothing is returned: is a `return` missing?", {"    return losses\n    # END": "    # END"}),
    Edit("each rank shortens its own gradient, and the mean of these points elsewhere: average first, then clip",
         {STEP: f"{BACKWARD}\n            {CLIP}\n            for parameter", CLIPPED: DIVIDED}),
    Edit("long gradients are shortened to max_norm divided by the number of ranks: either the sum of the gradients is "
         "clipped, and divided then, or max_norm is divided; average first, then clip to max_norm",
         {CLIPPED: f"pass\n            {CLIP}\n            for parameter in model.parameters():\n"
          f"                {DIVIDED}"}),
    Edit("gradients longer than max_norm are not clipped any more, or too late, after the step", {CLIPPED: DIVIDED}),
    Edit("the gradients are clipped in the loop over the parameters, while only some of them are averaged: clip once, "
         "after the loop", {CLIPPED: f"{DIVIDED}\n                {CLIP}"}),
    Edit("only rank 0 clips: the other ranks make other steps, and the models drift apart",
         {CLIPPED: f"{DIVIDED}\n            if dist.get_rank() == 0:\n                {CLIP}"}),
    Edit("each parameter is clipped by itself: max_norm is for the gradient of all together",
         {CLIPPED: f"{DIVIDED}\n                clip_grad_norm_(parameter, max_norm)"}),
    Edit("each element is clipped by itself: clip the length of all (clip_grad_norm_)",
         {CLIPPED: f"{DIVIDED}\n            torch.nn.utils.clip_grad_value_(model.parameters(), max_norm)"}),
    Edit("only the last parameter's gradient is divided by the number of ranks, the others are sums: is the division "
         "within the loop over the parameters?", {CLIPPED: f"pass\n            {DIVIDED}\n            {CLIP}"}),
    Edit("the gradients are sums over the ranks: divide them by their number", {CLIPPED: f"pass\n            {CLIP}"}),
    Edit("the gradient of the step before is still in: a backward pass adds to p.grad",
         {f"optimizer.zero_grad()\n            {STEP}": STEP}),
    Edit("the learning rate is multiplied by the number of ranks: lr as it is belongs to the mean gradient",
         {START: START.replace("lr=lr", f"lr=lr * {N}")}),
    Edit("every rank goes on with its own parameters: the broadcast of rank 0's is no bug, and is needed",
         {START: START[: START.index("    for")]}),
    Edit("every epoch has the order of epoch 0: nobody tells the sampler that a new epoch begins (set_epoch)",
         {SET: "pass"}),
    Edit("the order is one epoch behind (0, 0, 1, ...): set_epoch must come before the loader begins the epoch",
         {SET: "sampler.set_epoch(max(0, epoch - 1))"}),
    Edit("these are the orders of epochs 1, 2, ... with seed 0: the first epoch is number 0",
         {SET: "sampler.set_epoch(epoch + 1)"}),
    Edit("each rank shuffles in its own way, so some samples come twice in an epoch and others never: all ranks must "
         "shuffle alike, with the same seed and the same epoch",
         {SAMPLER: SAMPLER.replace("(dataset)", "(dataset, seed=dist.get_rank())")}),
    Edit("the samples come in the order of the data set: the sampler has to shuffle them",
         {SAMPLER: SAMPLER.replace("(dataset)", "(dataset, shuffle=False)")}),
    Edit("training goes on for one epoch more than `epochs`",
         {"for epoch in range(epochs)": "for epoch in range(epochs + 1)"}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    g, given, p = case.generator(), [], case.params
    slope = torch.randn(FEATURES, 1, generator=g, dtype=torch.float64)
    slope *= 2 / slope.norm()
    x = torch.randn(SAMPLES, FEATURES, generator=g, dtype=torch.float64)
    # Pairs of the same x, with y off by 2 x rank to both sides: so a rank's loss is higher by the square of that.
    held = torch.randn(8, FEATURES, generator=g, dtype=torch.float64).repeat(2, 1)
    aside = torch.tensor([[1.0] * 8 + [-1.0] * 8], dtype=torch.float64).T
    numbers = {"epochs": p["epochs"], "batch_size": BATCH, "lr": LR, "max_norm": p.get("max_norm", NO_LIMIT)}
    for rank in range(case.world_size):
        own: dict[str, Any] = {
            "weight": 0.1 * torch.randn(1, FEATURES, generator=g, dtype=torch.float64),
            "x": x,
            "y": x @ slope,
        }
        own["bias"] = torch.full((1,), 0.1 * rank, dtype=torch.float64)
        own["validation"] = [held, held @ slope + 2.0 * rank * aside]
        given.append({**own, "numbers": {**numbers, "target": NEVER}, "look": p["look"]})
    if "ends" in p:
        losses = trained(given)["losses"]
        for own in given:  # reached after epoch END, if the loss falls
            own["numbers"]["target"] = (losses[END - 1] + losses[END]) / 2
    return given


def trained(given: Given) -> dict[str, Any]:
    """The results of one process, whose batches are those of all ranks."""
    own, n, losses = given[0], len(given), list[float]()
    numbers = own["numbers"]
    model = torch.nn.Linear(FEATURES, 1, dtype=torch.float64)
    model.load_state_dict({"weight": own["weight"], "bias": own["bias"]})
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    samplers: list[Any] = [DistributedSampler(own["x"], n, rank) for rank in range(n)]
    for epoch in range(numbers["epochs"]):
        for sampler in samplers:
            sampler.set_epoch(epoch)
        orders = [list(sampler) for sampler in samplers]
        for first in range(0, SAMPLES // n, BATCH):
            rows = [row for order in orders for row in order[first : first + BATCH]]
            optimizer.zero_grad()
            mse_loss(model(own["x"][rows]), own["y"][rows]).backward()
            clip_grad_norm_(model.parameters(), numbers["max_norm"])
            optimizer.step()
        x, y = (torch.cat(column) for column in zip(*[one["validation"] for one in given], strict=True))
        losses.append(mse_loss(model(x), y).item())
        if losses[-1] < numbers["target"]:
            break
    return {"losses": losses, "parameters": [p.detach() for p in model.parameters()]}


def on_rank(answer: Any, weight: Any, bias: Any, x: Any, y: Any, validation: Any, numbers: Any, look: Any) -> Any:
    class Samples(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return len(x)

        def __getitem__(self, index: Any) -> Any:
            return x[index], y[index]

    model = torch.nn.Linear(x.shape[1], 1, dtype=torch.float64)
    model.load_state_dict({"weight": weight, "bias": bias})
    losses = answer(model, Samples(), tuple(validation), **numbers)
    facts = {"losses": losses, "parameters": [p.detach() for p in model.parameters()]}
    return {name: facts[name] for name in look}


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    facts = trained(given)
    return [{name: facts[name] for name in case.params["look"]}] * case.world_size


CHECK = Check(on_rank, inputs, expected, cases=CASES, edits=EDITS)
