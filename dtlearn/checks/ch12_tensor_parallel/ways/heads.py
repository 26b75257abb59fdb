"""Attention by heads, right and in ways that people get wrong: for `fused_qkv`. It runs in the judge, in float64."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

Job = dict[str, Any]


@dataclass(frozen=True)
class Way:
    """How the weights are cut, and what is computed.

    Attributes:
        cut: "own"; "contiguous" (the fused weight as one), "thirds" (of the rows, whatever K is), "job" (by the number
            in the job), "dealt" (heads in turn), "singly" (rows in turn), "by head" (q, k, v of a head side by side),
            "all keys" (keys and values whole), "rows" (of the output's weight).
        shared: "in order"; "in turn" (a rank's key heads are repeated one after the other).
        scale: "head", "all" (of all features), "none".
        causal: whether later tokens are masked.
        mixed: "no"; "before" or "after" attention, heads and tokens change places without a transposition.
        f, g: where the two are called: "right"; "no"; "swapped" (each in the place of the other); f "queries" (keys and
            values are made of x itself), "late" (before the output's product); g "early" (before that product), "mean".
    """

    cut: str = "own"
    shared: str = "in order"
    scale: str = "head"
    causal: bool = True
    mixed: str = "no"
    f: str = "right"
    g: str = "right"


CUTS: tuple[tuple[str, str, Way], ...] = (
    (
        "FUSED-CUT",
        "the fused weight is cut into contiguous pieces, as if it were one: the first rank then has no values, the "
        "last one no queries. Cut the queries, the keys and the values each",
        Way("contiguous"),
    ),
    (
        "FUSED-THIRDS",
        "the fused weight is cut as thirds: with fewer key and value heads the queries have more than a third of its "
        "rows",
        Way("thirds"),
    ),
    (
        "GROUP-IGNORED",
        "the heads are those of the rank's number in the job; its place in the group counts: dist.get_rank(group)",
        Way("job"),
    ),
    ("DEALT-OUT", "the heads are dealt out in turn; a rank's heads have to follow one another", Way("dealt")),
    (
        "DEALT-OUT",
        "rows are dealt out one by one; the rows of a head stay together, and a rank's heads follow one another",
        Way("singly"),
    ),
    (
        "BY-HEAD",
        "the rows are laid out head by head, query, key and value side by side: first come all queries of this rank, "
        "then its keys, then its values",
        Way("by head"),
    ),
    ("KEYS-WHOLE", "all key and value heads are on every rank: it needs those that its queries use", Way("all keys")),
    ("OUTPUT-ROWS", "the output's weight is cut by rows: a rank's heads are the input of it, its columns", Way("rows")),
)
_TOKENS = "heads and tokens change places"
RUNS: tuple[tuple[str, str, Way], ...] = (
    (
        "PARTIAL-GRADIENT",
        "the gradient of x is that of this rank's heads only: f, before the first product, adds up those of all ranks",
        Way(f="no"),
    ),
    ("PARTIAL-SUM", "the output is that of this rank's heads only: g adds up those of all ranks", Way(g="no")),
    (
        "PARTIAL-GRADIENT",
        "f is applied for the queries only: keys and values are made of x, too, and their gradient has to go through f",
        Way(f="queries"),
    ),
    (
        "PARTIAL-GRADIENT",
        "f stands before the product with the output's weight, where each rank has heads of its own; it belongs where "
        "all ranks have the same, at x",
        Way(f="late"),
    ),
    (
        "PARTIAL-SUM",
        "g stands before the product with the output's weight, and adds up heads that have nothing to do with one "
        "another; partial sums are what comes after it",
        Way(g="early"),
    ),
    ("SWAPPED", "f and g are swapped: f comes first, g last", Way(f="swapped", g="swapped")),
    ("AVERAGED", "the ranks' outputs are averaged: they have to be added up", Way(g="mean")),
    (
        "KV-ORDER",
        "queries use key and value heads in turn (repeat); those that follow one another share one (repeat_interleave)",
        Way(shared="in turn"),
    ),
    ("SCALE-SCORES", "the scores are divided by the root of all features; the size of a head counts", Way(scale="all")),
    ("SCALE-SCORES", "the scores are not divided by the root of the head size", Way(scale="none")),
    ("NOT-CAUSAL", "tokens attend to later ones: the attention is causal (is_causal=True)", Way(causal=False)),
    (
        "HEADS-MIXED",
        f"{_TOKENS} before attention without a transposition: (B, T, H, D) has to be transposed, not reshaped",
        Way(mixed="before"),
    ),
    (
        "HEADS-MIXED",
        f"{_TOKENS} after attention without a transposition: (B, H, T, D) has to be transposed first",
        Way(mixed="after"),
    ),
)


def weights_of(job: Job, rank: int, way: Way) -> tuple[torch.Tensor, torch.Tensor]:
    """What a rank has of the two weights."""
    H, K, group, D = job["num_heads"], job["num_kv_heads"], job["group"], job["head_size"]
    n, place, qkv, output = len(group), group.index(rank), job["qkv"], job["output"]
    if way.cut == "contiguous":
        return qkv.tensor_split(n)[place], output.chunk(n, 1)[place]
    if way.cut == "thirds":
        return torch.cat([part.tensor_split(n)[place] for part in qkv.tensor_split(3)]), output.chunk(n, 1)[place]
    place = rank % n if way.cut == "job" else place
    heads = [block.unflatten(0, (-1, D)) for block in qkv.split([H * D, K * D, K * D])]  # (heads, D, C) each
    if way.cut == "singly":
        blocks = qkv.split([H * D, K * D, K * D])
        return torch.cat([block[place::n] for block in blocks]), output[:, place::n]
    if way.cut == "dealt":
        q, k, v = (block[place::n] for block in heads)
        return torch.cat([q, k, v]).flatten(0, 1), output.unflatten(1, (H, D))[:, place::n].flatten(1)
    q, k, v = (block.chunk(n)[place] for block in heads)
    if way.cut == "by head":
        together = zip(q.chunk(len(k)), k, v, strict=True)
        own = torch.cat([torch.cat([*queries, key, value]) for queries, key, value in together])
        return own, output.chunk(n, 1)[place]
    k, v = (heads[1], heads[2]) if way.cut == "all keys" else (k, v)
    return torch.cat([q, k, v]).flatten(0, 1), output.chunk(n, int(way.cut != "rows"))[place]


def attend(job: Job, x: torch.Tensor, for_queries: torch.Tensor, qkv: torch.Tensor, way: Way) -> torch.Tensor:
    """What some heads make of x, from which queries are made separately: a rank's heads, or all."""
    D, times = job["head_size"], job["num_heads"] // job["num_kv_heads"]
    kv = len(qkv) // (times + 2)
    rows = qkv.split([kv * times, kv, kv])
    parts = [F.linear(one, weight) for one, weight in zip((for_queries, x, x), rows, strict=True)]
    if way.mixed == "before":
        q, k, v = (part.reshape(len(x), -1, x.shape[1], D) for part in parts)
    else:
        q, k, v = (part.unflatten(-1, (-1, D)).transpose(1, 2) for part in parts)
    again = (
        (lambda t: t.repeat(1, times, 1, 1)) if way.shared == "in turn" else (lambda t: t.repeat_interleave(times, 1))
    )
    scale = {"head": 1 / math.sqrt(D), "all": 1 / math.sqrt(x.shape[-1]), "none": 1.0}[way.scale]
    y = F.scaled_dot_product_attention(q, again(k), again(v), is_causal=way.causal, scale=scale)
    return y.reshape(len(x), x.shape[1], -1) if way.mixed == "after" else y.transpose(1, 2).flatten(2)


class _Sum(torch.autograd.Function):
    """The ranks' tensors, added up in "forward" or in "backward", in one process."""

    @staticmethod
    def forward(ctx: Any, where: str, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.where = where
        total = torch.stack(tensors).sum(0)
        return tuple((total if where == "forward" else one).clone() for one in tensors)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        total = torch.stack(gradients).sum(0)
        return None, *(total if ctx.where == "backward" else one for one in gradients)


def _summed(tensors: dict[int, torch.Tensor], where: str) -> dict[int, torch.Tensor]:
    return dict(zip(tensors, _Sum.apply(where, *tensors.values()), strict=True))


def play(job: Job, way: Way) -> dict[int, dict[str, Any]]:
    """By rank of a job's group: outputs and gradients; of a right answer too, from the heads of each rank."""
    group, dtype = job["group"], job["qkv"].dtype
    made: dict[int, dict[str, Any]] = {rank: {"outputs": [], "dx": []} for rank in group}
    weights = {r: [w.double().detach().requires_grad_() for w in weights_of(job, r, Way())] for r in group}
    f_sums, g_sums = ("backward", "forward") if way.f != "swapped" else ("forward", "backward")
    for x, dy in zip(job["xs"], job["dys"], strict=True):
        xs = {rank: x.double().clone().requires_grad_() for rank in group}
        through_f = xs if way.f in ("no", "late") else _summed(xs, f_sums)
        kv = xs if way.f == "queries" else through_f
        heads = {r: attend(job, kv[r], through_f[r], weights[r][0], way) for r in group}
        heads = _summed(heads, f_sums) if way.f == "late" else heads
        heads = _summed(heads, g_sums) if way.g == "early" else heads
        ys = {rank: F.linear(heads[rank], weights[rank][1]) for rank in group}
        ys = ys if way.g in ("no", "early") else _summed(ys, g_sums)
        ys = {r: y / len(group) for r, y in ys.items()} if way.g == "mean" else ys
        torch.autograd.backward([*ys.values()], [dy.double()] * len(group))
        for rank in group:
            dx = xs[rank].grad
            assert isinstance(dx, torch.Tensor)
            made[rank]["outputs"].append(ys[rank].detach().to(dtype))
            made[rank]["dx"].append(dx.to(dtype))
    for rank, (qkv, output) in weights.items():
        gradients = {"qkv": qkv.grad, "output": output.grad}
        made[rank]["gradients"] = {name: g.to(dtype) for name, g in gradients.items() if g is not None}
    return made
