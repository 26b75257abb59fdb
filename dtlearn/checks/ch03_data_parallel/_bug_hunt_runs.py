"""How a run of the training loop of ch03.bug_hunt ends that has given bugs, played in the judge without a rank."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import mse_loss
from torch.utils.data import DistributedSampler

from dtlearn.grading import Given

SAMPLES, BATCH, LR = 24, 2, 0.01


@dataclass(frozen=True)
class Run:
    """How a run is played. The defaults are right.

    Attributes:
        order: "epoch"; "same": never told the epoch; "late": one epoch behind; "from 1"; "by rank": own seeds; "plain":
            not shuffled.
        clip: "mean": the mean gradient; "own": each rank's before it; "sum": before the division; "never"; "each":
            parameter by itself; "value": each element; "in loop": all gradients, whenever one more of them is averaged;
            "on rank 0" only; "last divided": the mean, but all parameters except the last have the sum.
        old: "gone", or "kept": the gradient of the step before, to which the new one is added.
        loss: "mean" over the ranks, each rank's "own", "rank 0"'s, the "largest"; "half" the sum.
        stop: by the "loss" that is returned; by the "mean", also where another one is returned; when "any" rank's own
            loss is low enough, or when "all" are.
        start: with the parameters of "rank 0", or with each rank's "own".
    """

    order: str = "epoch"
    clip: str = "mean"
    old: str = "gone"
    loss: str = "mean"
    stop: str = "loss"
    start: str = "rank 0"


def play(given: Given, run: Run) -> list[dict[str, Any]]:
    """What each rank has at the end of a run, by rank."""
    n, numbers = len(given), given[0]["numbers"]
    starts = [given[r if run.start == "own" else 0] for r in range(n)]
    models = [[i["weight"].clone(), i["bias"].clone()] for i in starts]
    orders: list[list[int]] = [[] for _ in given]
    losses: list[list[float]] = [[] for _ in given]
    steps = [[torch.zeros_like(p) for p in model] for model in models]
    for epoch in range(numbers["epochs"]):
        shards = [_shard(run.order, epoch, r, n) for r in range(n)]
        data = [(i["x"][shard], i["y"][shard]) for i, shard in zip(given, shards, strict=True)]
        for first in range(0, SAMPLES // n, BATCH):
            rows = slice(first, first + BATCH)
            grads = [_gradient(m, x[rows], y[rows]) for m, (x, y) in zip(models, data, strict=True)]
            if run.old == "kept":
                grads = [
                    [g + old for g, old in zip(own, last, strict=True)] for own, last in zip(grads, steps, strict=True)
                ]
            steps = _steps(grads, run.clip, numbers["max_norm"])
            models = [[p - LR * g for p, g in zip(m, step, strict=True)] for m, step in zip(models, steps, strict=True)]
        held = [i["validation"] for i in given]
        own = [float(mse_loss(_out(m, x), y)) for m, (x, y) in zip(models, held, strict=True)]
        same = {"mean": sum(own) / n, "rank 0": own[0], "largest": max(own), "half": sum(own) / 2}
        told = own if run.loss == "own" else [same[run.loss]] * n
        for r in range(n):
            orders[r] += shards[r]
            losses[r].append(told[r])
        low = [loss < numbers["target"] for loss in own]
        mean_is_low = same["mean"] < numbers["target"]
        if {"loss": told[0] < numbers["target"], "mean": mean_is_low, "any": any(low), "all": all(low)}[run.stop]:
            break
    return [{"order": o, "losses": v, "parameters": m} for o, v, m in zip(orders, losses, models, strict=True)]


@functools.cache  # a check plays two dozen runs of each case
def _shard(order: str, epoch: int, rank: int, n: int) -> list[int]:
    sampler = DistributedSampler(range(SAMPLES), num_replicas=n, rank=rank, shuffle=order != "plain")  # type: ignore[arg-type, var-annotated]
    told = {"same": 0, "late": max(0, epoch - 1), "from 1": epoch + 1, "by rank": epoch + rank}
    sampler.set_epoch(told.get(order, epoch))
    return list(sampler)


def _out(model: list[torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    return x @ model[0].T + model[1]


def _gradient(model: list[torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
    error = (_out(model, x) - y) * (2 / len(x))
    return [error.T @ x, error.sum(0)]


def _clipped(grads: list[torch.Tensor], max_norm: float) -> list[torch.Tensor]:
    length = math.sqrt(sum(float(g.square().sum()) for g in grads))
    factor = min(1.0, max_norm / (length + 1e-6))
    return [g * factor for g in grads] if factor < 1 else grads


def _steps(grads: list[list[torch.Tensor]], clip: str, max_norm: float) -> list[list[torch.Tensor]]:
    """The gradient that each rank steps by, by rank."""
    n = len(grads)
    if clip == "on rank 0":
        mean = _averaged(grads, "never", max_norm)
        return [_clipped(mean, max_norm)] + [mean] * (n - 1)
    if clip != "in loop":
        return [_averaged(grads, clip, max_norm)] * n
    for k in range(len(grads[0])):
        mean_k = torch.stack([own[k] for own in grads]).mean(0)
        grads = [_clipped([*own[:k], mean_k, *own[k + 1 :]], max_norm) for own in grads]
    return grads


def _averaged(grads: list[list[torch.Tensor]], clip: str, max_norm: float) -> list[torch.Tensor]:
    n = len(grads)
    if clip == "own":  # their mean is no longer than max_norm: clipping that too would change nothing
        grads = [_clipped(g, max_norm) for g in grads]
    total = [torch.stack(column).sum(0) for column in zip(*grads, strict=True)]
    if clip == "sum":
        return [g / n for g in _clipped(total, max_norm)]
    mean = [g / n for g in total]
    if clip == "last divided":
        return _clipped([*total[:-1], mean[-1]], max_norm)
    if clip == "each":
        return [_clipped([g], max_norm)[0] for g in mean]
    if clip == "value":
        return [g.clamp(-max_norm, max_norm) for g in mean]
    return _clipped(mean, max_norm) if clip == "mean" else mean
