"""ch03.bug_hunt: a training loop, each of its three bugs in a case that shows this one only, and all together.

A run with given bugs is played in the judge (`_play`): so what they lead to is recognised by its values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from torch.nn.functional import mse_loss
from torch.utils.data import DistributedSampler

from ...check import Case, Check, Given, Mistake

_SAMPLES, _FEATURES, _BATCH = 24, 3, 2
_LR, _NO_LIMIT, _NEVER = 0.01, 1e9, -1.0
_END = 2  # the epoch after which training ends, where it ends early
# `look`: what is compared. `ends`: the target is one that training reaches.
_CASES: dict[str, dict[str, Any]] = {
    "the order of the samples": {"epochs": 3, "max_norm": _NO_LIMIT, "ends": False, "look": ["order"]},
    "long gradients": {"epochs": 1, "max_norm": 0.5, "ends": False, "look": ["parameters"]},
    "the validation loss": {"epochs": 1, "max_norm": _NO_LIMIT, "ends": False, "look": ["losses"]},
    "an early end": {"epochs": 5, "max_norm": 0.5, "ends": True, "look": ["order", "losses", "parameters"]},
}


@dataclass(frozen=True)
class _Run:
    """How a run is played. The defaults are right.

    Attributes:
        order: "epoch"; "same": never told the epoch; "late": one epoch behind; "from 1"; "by rank": own seeds.
        clip: "mean": the mean gradient; "own": each rank's before it; "sum": before the division; "never".
        loss: "mean" over the ranks, each rank's "own", "rank 0"'s.
        stop: by the "loss", when "any" rank's own loss is low enough, or when "all" are.
        start: with the parameters of "rank 0", or with each rank's "own".
    """

    order: str = "epoch"
    clip: str = "mean"
    loss: str = "mean"
    stop: str = "loss"
    start: str = "rank 0"


_SAYS = {
    "same": (
        "DTL-VALUE-EPOCH",
        "every epoch has the order of epoch 0: nobody tells the sampler that a new epoch begins (set_epoch)",
    ),
    "late": (
        "DTL-VALUE-EPOCH",
        "the order is one epoch behind (0, 0, 1, ...): set_epoch must come before the loader begins the epoch",
    ),
    "from 1": ("DTL-VALUE-EPOCH", "these are the orders of epochs 1, 2, ...: the first epoch is number 0"),
    "by rank": (
        "DTL-VALUE-SEED",
        "each rank shuffles in its own way, so some samples come twice in an epoch and others never: all ranks must "
        "shuffle alike, with the same seed and the same epoch",
    ),
    "own clip": (
        "DTL-VALUE-CLIP",
        "each rank shortens its own gradient, and the mean of these points elsewhere: average first, then clip",
    ),
    "sum": (
        "DTL-VALUE-CLIP",
        "the sum of the gradients is clipped, and then divided by the number of ranks: average first, then clip",
    ),
    "never": ("DTL-VALUE-CLIP", "gradients longer than max_norm are not clipped any more"),
    "own": (
        "DTL-VALUE-OWN-LOSS",
        "each rank goes by the loss of its own validation data: one day one of them ends and the others wait for it",
    ),
    "rank 0": ("DTL-VALUE-OWN-LOSS", "the loss is that of rank 0's validation data: the other ranks' do not count"),
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
    x = torch.randn(_SAMPLES, _FEATURES, generator=g, dtype=torch.float64)
    # Pairs of the same x, with y off by 2 x rank to both sides: so a rank's loss is higher by the square of that.
    held = torch.randn(8, _FEATURES, generator=g, dtype=torch.float64).repeat(2, 1)
    aside = torch.tensor([[1.0] * 8 + [-1.0] * 8], dtype=torch.float64).T
    given = []
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
                    "batch_size": _BATCH,
                    "lr": _LR,
                    "max_norm": case.params["max_norm"],
                    "target": _NEVER,
                },
                "look": case.params["look"],
            }
        )
    if case.params["ends"]:
        losses = _play(given, _Run())[0]["losses"]
        for i in given:  # reached after epoch _END, if the loss falls
            i["numbers"]["target"] = (losses[_END - 1] + losses[_END]) / 2
    return given


def on_rank(answer: Any, weight: Any, bias: Any, x: Any, y: Any, validation: Any, numbers: Any, look: list[str]) -> Any:
    order = []

    class Samples(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return len(x)

        def __getitem__(self, index: Any) -> Any:
            order.append(int(index))
            return x[index], y[index]

    model = torch.nn.Linear(x.shape[1], 1, dtype=torch.float64)
    model.load_state_dict({"weight": weight, "bias": bias})
    losses = answer(model, Samples(), tuple(validation), **numbers)
    found = {"order": order, "losses": losses, "parameters": [p.detach() for p in model.parameters()]}
    return {name: found[name] for name in look}


def _play(given: Given, run: _Run) -> list[dict[str, Any]]:
    """What each rank has at the end of a run, by rank."""
    n, numbers = len(given), given[0]["numbers"]
    starts = [given[r if run.start == "own" else 0] for r in range(n)]
    models = [[i["weight"].clone(), i["bias"].clone()] for i in starts]
    orders: list[list[int]] = [[] for _ in given]
    losses: list[list[float]] = [[] for _ in given]
    for epoch in range(numbers["epochs"]):
        shards = [_shard(run.order, epoch, r, n) for r in range(n)]
        for first in range(0, _SAMPLES // n, _BATCH):
            rows = [shard[first : first + _BATCH] for shard in shards]
            grads = [_gradient(m, i["x"][b], i["y"][b]) for m, i, b in zip(models, given, rows, strict=True)]
            step = _averaged(grads, run.clip, numbers["max_norm"])
            models = [[p - _LR * g for p, g in zip(m, step, strict=True)] for m in models]
        own = [
            float(mse_loss(_out(m, i["validation"][0]), i["validation"][1])) for m, i in zip(models, given, strict=True)
        ]
        told = {"mean": [sum(own) / n] * n, "own": own, "rank 0": [own[0]] * n}[run.loss]
        for r in range(n):
            orders[r] += shards[r]
            losses[r].append(told[r])
        low = [loss < numbers["target"] for loss in own]
        if {"loss": told[0] < numbers["target"], "any": any(low), "all": all(low)}[run.stop]:
            break
    return [{"order": o, "losses": v, "parameters": m} for o, v, m in zip(orders, losses, models, strict=True)]


def _shard(order: str, epoch: int, rank: int, n: int) -> list[int]:
    sampler = DistributedSampler(range(_SAMPLES), num_replicas=n, rank=rank)  # type: ignore[arg-type, var-annotated]
    told = {"same": 0, "late": max(0, epoch - 1), "from 1": epoch + 1, "by rank": epoch + rank}
    sampler.set_epoch(told.get(order, epoch))
    return list(sampler)


def _out(model: list[torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    return x @ model[0].T + model[1]


def _gradient(model: list[torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
    error = 2 * (_out(model, x) - y) / len(x)
    return [error.T @ x, error.sum(0)]


def _clipped(grads: list[torch.Tensor], max_norm: float) -> list[torch.Tensor]:
    length = math.sqrt(sum(float(g.square().sum()) for g in grads))
    return [g * min(1.0, max_norm / (length + 1e-6)) for g in grads]


def _averaged(grads: list[list[torch.Tensor]], clip: str, max_norm: float) -> list[torch.Tensor]:
    n = len(grads)
    if clip == "own":  # their mean is no longer than max_norm: clipping that too would change nothing
        grads = [_clipped(g, max_norm) for g in grads]
    total = [torch.stack(column).sum(0) for column in zip(*grads, strict=True)]
    if clip == "sum":
        return [g / n for g in _clipped(total, max_norm)]
    mean = [g / n for g in total]
    return _clipped(mean, max_norm) if clip == "mean" else mean


def _looked(case: Case, given: Given, run: _Run) -> list[dict[str, Any]]:
    return [{name: played[name] for name in case.params["look"]} for played in _play(given, run)]


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    return _looked(case, given, _Run())


def mistakes(case: Case, given: Given) -> list[Mistake]:
    runs = [_Run(order=o, clip=c, loss=v) for o, c, v in product(("epoch", "same"), ("mean", "own"), ("mean", "own"))]
    runs += [_Run(order=order) for order in ("late", "from 1", "by rank")]
    runs += [_Run(clip=clip) for clip in ("sum", "never")]
    runs += [_Run(loss="rank 0"), _Run(stop="any"), _Run(stop="all"), _Run(start="own")]
    found = []
    for run in sorted(runs, key=lambda run: len(_deviations(run))):
        if says := [_SAYS[name] for name in _deviations(run)]:
            text = "; and ".join(text for _, text in says)
            found.append(Mistake(says[0][0], text, _looked(case, given, run)))
    return found


def _deviations(run: _Run) -> list[str]:
    """What is wrong with a run, as keys of `_SAYS`."""
    found = [run.order] * (run.order != "epoch")
    found += ["own clip" if run.clip == "own" else run.clip] * (run.clip != "mean")
    found += [run.loss] * (run.loss != "mean") + [run.stop] * (run.stop != "loss")
    return found + ["own start"] * (run.start != "rank 0")


CHECK = Check(on_rank, inputs, expected, cases=_CASES, mistakes=mistakes)
