"""A row-parallel layer, right and in ways that people get wrong, in float64: for `row_parallel`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from dtlearn.grading import Given
from dtlearn.runtime.words import listed


@dataclass(frozen=True)
class Way:
    """How a layer is made.

    Attributes:
        columns: of which columns the weight is: "own", "job" (by the number in the job), "dealt" (in turn).
        summed: what is made of the partial sums: "sum", "own", "mean".
        bias: "once", "before" (added before the sum), "divided" (by the ranks, before it), "first" (on the first rank
            only, before it), "taken off" (t times before it, t - 1 times off after it),
            "rank 0" (on that of the job), "zeros" (as "first", with gradients of 0 on the others),
            "after" (as "first", after the sum), "frozen" (without a gradient), "none" (not added).
        updated: of what a change of the parameters reaches the output.
    """

    columns: str = "own"
    summed: str = "sum"
    bias: str = "once"
    updated: tuple[str, ...] = ("weight", "bias")


PARTS: tuple[tuple[str, str, Way], ...] = (
    (
        "GROUP-IGNORED",
        "the weight's columns are those of the rank's number in the job; its place in the group counts: "
        "dist.get_rank(group)",
        Way(columns="job"),
    ),
    ("DEALT-OUT", "the weight's columns are dealt out in turn; they have to be contiguous", Way(columns="dealt")),
)
WAYS: tuple[tuple[str, str, Way], ...] = (
    (
        "BIAS-TIMES",
        "the bias counts once for each rank of the group: it is added before g, which adds it up (add it after g)",
        Way(bias="before"),
    ),
    (
        "BIAS-DIVIDED",
        "the bias is divided by the number of ranks before g: the output is right, the bias's gradient is divided "
        "too (add the whole bias after g)",
        Way(bias="divided"),
    ),
    (
        "BIAS-ONE-RANK",
        "the bias is added on the first rank of the group only: the output is right, but on the other ranks the bias "
        "has no gradient, and their copies stay as they are (add it on all ranks, after g)",
        Way(bias="first"),
    ),
    (
        "BIAS-ONE-RANK",
        "the bias is added on the first rank of the group only: the output is right, but on the other ranks the "
        "bias's gradient is 0, and their copies stay as they are (add it on all ranks, after g)",
        Way(bias="zeros"),
    ),
    (
        "BIAS-ONE-RANK",
        "the bias is added on rank 0 of the job only: other groups have none, and on other ranks it has no gradient "
        "(add it on all ranks, after g)",
        Way(bias="rank 0"),
    ),
    (
        "BIAS-ONE-RANK",
        "the bias is added after g on the first rank of the group only: the output has to be the same on all ranks",
        Way(bias="after"),
    ),
    (
        "BIAS-TIMES",
        "the bias is added on each rank before g, and t - 1 times taken off after it: the output is right, the bias's "
        "gradient is 2 - t times what it should be (add it once, after g)",
        Way(bias="taken off"),
    ),
    ("BIAS-FORGOTTEN", "the bias is not added", Way(bias="none")),
    (
        "OLD-VALUES",
        "after an update of the parameters the output still has the old bias: forward uses a copy of it",
        Way(updated=("weight",)),
    ),
    (
        "OLD-VALUES",
        "after an update of the parameters the output still has the old weight: forward uses a copy of it",
        Way(updated=("bias",)),
    ),
    ("BIAS-FROZEN", "the bias is added and has no gradient: is it cut off from autograd?", Way(bias="frozen")),
    (
        "PARTIAL-SUM",
        "the output is this rank's partial sum, with the bias: g adds up those of all ranks",
        Way("own", "own"),
    ),
    ("AVERAGED", "the partial sums are averaged over the ranks: they have to be added up", Way("own", "mean")),
)


def play(given: Given, way: Way) -> list[dict[str, Any]]:
    """By rank: of each layer, its parameters, outputs and gradients."""
    made: list[dict[str, Any]] = [{} for _ in given]
    for number, first in enumerate(given[0]["jobs"]):
        for group in first["groups"] if first["xs"] else ():
            for rank in group:
                made[rank][title_of(given[rank]["jobs"][number])] = _layer(given, number, group, rank, way)
    return made


def _layer(given: Given, number: int, group: list[int], rank: int, way: Way) -> dict[str, Any]:
    jobs, t, place = [given[r]["jobs"][number] for r in group], len(group), group.index(rank)
    job, weight = jobs[place], jobs[0]["weight"].double()
    k = weight.shape[1] // t
    start = (rank % t if way.columns == "job" else place) * k
    part = weight[:, place::t] if way.columns == "dealt" else weight[:, start : start + k]
    bias = torch.zeros(len(weight)).double() if job["bias"] is None else job["bias"].double()
    times = {"before": t, "none": 0, "rank 0": 0 in group, "after": not place}.get(way.bias, 1)
    outputs, dxs, dw, db = [], [], torch.zeros_like(part), torch.zeros_like(bias)
    factor = 1 / t if way.summed == "mean" else 1
    more, more_bias = "weight" in way.updated, "bias" in way.updated and job["bias"] is not None
    for m, dy in enumerate(job["dys"]):
        x, dy = job["xs"][m].double(), dy.double()
        total = F.linear(torch.cat([one["xs"][m] for one in jobs], -1).double(), weight)
        total = F.linear(x, part) if way.summed == "own" else total
        outputs.append(total * factor + bias * times)
        dxs.append(dy @ part * factor)
        dys = dy.reshape(-1, len(weight))
        dw += dys.T @ x.reshape(-1, k) * factor
        db += dys.sum(0) * {"divided": 1 / t, "taken off": 2 - t}.get(way.bias, 1)
    db = db * 0 if way.bias == "zeros" and place else db
    without = (
        way.bias in ("none", "frozen") or (way.bias in ("first", "after") and place) or (way.bias == "rank 0" and rank)
    )
    cast = lambda tensor: tensor.to(job["weight"].dtype)  # noqa: E731
    named: dict[str, Any] = {"parameters": {"weight": cast(part)}, "outputs": [cast(y) for y in outputs]}
    whole = torch.cat([one["xs"][0] for one in jobs], -1).double()
    now = F.linear(job["xs"][0].double(), part + more) if way.summed == "own" else F.linear(whole, weight + more)
    named["after an update"] = cast(now * factor + (bias + more_bias) * times)
    named |= {"dx": [cast(dx) for dx in dxs], "gradients": {"weight": cast(dw)}}
    if job["bias"] is not None:
        named["parameters"]["bias"], named["gradients"]["bias"] = job["bias"], None if without else cast(db)
    return named


def title_of(job: dict[str, Any]) -> str:
    group, bias = job["group"], "" if job["bias"] is None else " and a bias"
    return f"a weight {tuple(job['weight'].shape)}{bias}, rank{'s' * (len(group) > 1)} {listed(group)}"
