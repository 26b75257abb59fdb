"""ch03.bug_hunt: a training loop, each of its three bugs in a case that shows this one only, and all together.

A run with given bugs is played in the judge (`play`): so what they lead to is recognised by its values. The order of
the samples is judged by the parameters too: a program may read the data set when and as often as it likes.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import torch

from dtlearn.grading import Case, Check, Finding, Given, Mistake, compare
from dtlearn.runtime.record.record import Record
from dtlearn.runtime.words import counted

from ._bug_hunt_runs import BATCH, LR, SAMPLES, Run, play

_FEATURES, _NO_LIMIT, _NEVER = 3, 1e9, -1.0
_END = 2  # the epoch after which training ends, where it ends early
# `look`: what is compared. `ends`: the target is one that training reaches.
_CASES: dict[str, dict[str, Any]] = {
    "the order of the samples": {"epochs": 3, "max_norm": _NO_LIMIT, "ends": False, "look": ["parameters"]},
    "long gradients": {"epochs": 1, "max_norm": 0.5, "ends": False, "look": ["parameters"]},
    "the validation loss": {"epochs": 1, "max_norm": _NO_LIMIT, "ends": False, "look": ["losses"]},
    "an early end": {"epochs": 5, "max_norm": 0.5, "ends": True, "look": ["losses", "parameters"]},
}


_SAYS = {
    "same": (
        "DTL-VALUE-EPOCH",
        "every epoch has the order of epoch 0: nobody tells the sampler that a new epoch begins (set_epoch)",
    ),
    "late": (
        "DTL-VALUE-EPOCH",
        "the order is one epoch behind (0, 0, 1, ...): set_epoch must come before the loader begins the epoch",
    ),
    "from 1": ("DTL-VALUE-EPOCH", "these are the orders of epochs 1, 2, ... with seed 0: the first epoch is number 0"),
    "by rank": (
        "DTL-VALUE-SEED",
        "each rank shuffles in its own way, so some samples come twice in an epoch and others never: all ranks must "
        "shuffle alike, with the same seed and the same epoch",
    ),
    "plain": ("DTL-VALUE-SHUFFLE", "the samples come in the order of the data set: the sampler has to shuffle them"),
    "own clip": (
        "DTL-VALUE-CLIP",
        "each rank shortens its own gradient, and the mean of these points elsewhere: average first, then clip",
    ),
    "sum": (
        "DTL-VALUE-CLIP",
        "long gradients are shortened to max_norm divided by the number of ranks: either the sum of the gradients is "
        "clipped, and divided then, or max_norm is divided; average first, then clip to max_norm",
    ),
    "never": ("DTL-VALUE-CLIP", "gradients longer than max_norm are not clipped any more, or too late, after the step"),
    "in loop": (
        "DTL-VALUE-CLIP",
        "the gradients are clipped in the loop over the parameters, while only some of them are averaged: clip once, "
        "after the loop",
    ),
    "on rank 0": ("DTL-VALUE-CLIP", "only rank 0 clips: the other ranks make other steps, and the models drift apart"),
    "last divided": (
        "DTL-VALUE-FACTOR",
        "only the last parameter's gradient is divided by the number of ranks, the others are sums: is the division "
        "within the loop over the parameters?",
    ),
    "each": ("DTL-VALUE-CLIP", "each parameter is clipped by itself: max_norm is for the gradient of all together"),
    "value": ("DTL-VALUE-CLIP", "each element is clipped by itself: clip the length of all (clip_grad_norm_)"),
    "kept": ("DTL-VALUE-OLD", "the gradient of the step before is still in: a backward pass adds to p.grad"),
    "own": (
        "DTL-VALUE-OWN-LOSS",
        "each rank returns the loss of its own validation data, and not the mean of all: if it also goes by that, one "
        "day one of them ends and the others wait for it",
    ),
    "rank 0": ("DTL-VALUE-OWN-LOSS", "the loss is that of rank 0's validation data: the other ranks' do not count"),
    "largest": ("DTL-VALUE-LARGEST", "the loss is the largest of the ranks' losses (MAX): their mean is asked for"),
    "half": (
        "DTL-VALUE-HARD-CODED",
        "the sum of the ranks' losses is divided by 2, however many ranks there are: ask dist.get_world_size()",
    ),
    "any": ("DTL-VALUE-STOP", "training ends when one rank's own loss is below the target; their mean decides"),
    "all": ("DTL-VALUE-STOP", "training ends when every rank's own loss is below the target; their mean decides"),
    "own start": (
        "DTL-VALUE-START",
        "every rank goes on with its own parameters: the broadcast of rank 0's is no bug, and is needed",
    ),
}


def inputs(case: Case) -> Given:
    g, n = case.generator(), case.world_size
    slope = torch.randn(_FEATURES, 1, generator=g, dtype=torch.float64)
    slope *= 2 / slope.norm()
    x = torch.randn(SAMPLES, _FEATURES, generator=g, dtype=torch.float64)
    # Pairs of the same x, with y off by 2 x rank to both sides: so a rank's loss is higher by the square of that.
    held = torch.randn(8, _FEATURES, generator=g, dtype=torch.float64).repeat(2, 1)
    aside = torch.tensor([[1.0] * 8 + [-1.0] * 8], dtype=torch.float64).T
    given: Given = []
    for rank in range(n):
        given.append(
            {
                "weight": 0.1 * torch.randn(1, _FEATURES, generator=g, dtype=torch.float64),
                "bias": torch.full((1,), 0.1 * rank, dtype=torch.float64),
                "x": x,
                "y": x @ slope,
                "validation": [held, held @ slope + 2.0 * rank * aside],
                "numbers": {
                    "epochs": case.params["epochs"],
                    "batch_size": BATCH,
                    "lr": LR,
                    "max_norm": case.params["max_norm"],
                    "target": _NEVER,
                },
            }
        )
    if case.params["ends"]:
        losses = play(given, Run())[0]["losses"]
        for i in given:  # reached after epoch _END, if the loss falls
            i["numbers"]["target"] = (losses[_END - 1] + losses[_END]) / 2
    return given


def on_rank(answer: Any, weight: Any, bias: Any, x: Any, y: Any, validation: Any, numbers: Any) -> Any:
    order: list[int] = []

    class Samples(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return len(x)

        def __getitem__(self, index: Any) -> Any:
            return x[index], y[index]

    def note(_: Any, args: Any, kwargs: Any) -> None:
        if torch.is_grad_enabled():  # training
            rows = [*args, *kwargs.values()][0].detach().reshape(-1, 1, x.shape[1])
            order.extend((rows == x).all(-1).nonzero()[:, 1].tolist())

    model = torch.nn.Linear(x.shape[1], 1, dtype=torch.float64)
    model.load_state_dict({"weight": weight, "bias": bias})
    model.register_forward_pre_hook(note, with_kwargs=True)
    losses = answer(model, Samples(), tuple(validation), **numbers)
    return {"order": order, "losses": losses, "parameters": [p.detach() for p in model.parameters()]}


def _looked(case: Case, given: Given, run: Run) -> list[dict[str, Any]]:
    return [{name: played[name] for name in case.params["look"]} for played in play(given, run)]


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    return _looked(case, given, Run())


def mistakes(case: Case, given: Given) -> list[Mistake]:
    runs = [Run(order=o, clip=c, loss=v) for o, c, v in product(("epoch", "same"), ("mean", "own"), ("mean", "own"))]
    runs += [Run(order=order) for order in ("late", "from 1", "by rank", "plain")]
    runs += [Run(clip=clip) for clip in ("sum", "never", "each", "value", "in loop", "on rank 0", "last divided")]
    runs += [Run(loss=loss) for loss in ("rank 0", "largest", "half")] + [Run(old="kept")]
    runs += [Run(stop="any"), Run(stop="all"), Run(start="own"), Run(loss="own", stop="mean")]
    found = []
    for run in sorted(runs, key=lambda run: len(_deviations(run))):
        if says := [_SAYS[name] for name in _deviations(run)]:
            text = "; and ".join(text for _, text in says)
            found.append(Mistake(says[0][0], text, _looked(case, given, run)))
    return found


def _deviations(run: Run) -> list[str]:
    """What is wrong with a run, as keys of `_SAYS`."""
    found = [run.order] * (run.order != "epoch")
    found += ["own clip" if run.clip == "own" else run.clip] * (run.clip != "mean")
    found += [run.old] * (run.old != "gone")
    found += [run.loss] * (run.loss != "mean") + [run.stop] * (run.stop not in ("loss", "mean"))
    return found + ["own start"] * (run.start != "rank 0")


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    """Compares; where the values alone say nothing, by the samples that went through the model."""
    found = compare(_VALUES, case, given, expected(case, given), [{k: g[k] for k in case.params["look"]} for g in got])
    if found is None or found.code not in ("DTL-VALUE", "DTL-VALUE-SHAPE", "DTL-VALUE-NONE"):
        return found
    for rank, (one, right) in enumerate(zip(got, play(given, Run()), strict=True)):
        have, want, each = one["order"], right["order"], SAMPLES // case.world_size
        if found.code == "DTL-VALUE-NONE":
            return Finding(found.code, f"rank {rank} returned None: is a `return` missing?", rank)
        epochs, losses = len(have) // each, one.get("losses")
        if have == want and isinstance(losses, list) and len(losses) == epochs - 1:
            text = (
                f"rank {rank} trained for {counted(epochs, 'epoch')} and returned {len(losses)} of their losses: the "
            )
            text += "loss that ends the training is missing; append it before the `break`"
            return Finding("DTL-VALUE-STOP", text, rank)
        if have and len(have) != len(want):
            text = f"rank {rank} trained on {counted(len(have), 'sample')}; each epoch has {each} for it, so it made "
            text += f"{len(have) / each:g} epochs, and training ends after {len(want) // each}"
            return Finding("DTL-VALUE-STOP", text, rank)
        if have and have != want:
            at = next(k for k in range(len(want)) if have[k] != want[k])
            text = f"in epoch {at // each} the place {at % each} of rank {rank} has sample {have[at]}; with torch's "
            text += f"DistributedSampler and seed 0 it has sample {want[at]}"
            return Finding("DTL-VALUE-ORDER", text, rank)
    if got[0]["order"] and "parameters" in found.text:
        found = replace(found, text=f"the samples come in the right order, but the steps are wrong ones: {found.text}")
    return found


_VALUES = Check(on_rank, inputs, expected, cases=_CASES, mistakes=mistakes)
CHECK = Check(on_rank, inputs, None, cases=_CASES, verify=verify)
