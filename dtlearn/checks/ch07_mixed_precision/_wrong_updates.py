"""Updates of ch07.accumulate_with_scaling, played in float64: right ones, and what people make of them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from dtlearn.grading import Given

UPDATES, ROWS, ELEMENTS = 5, 5, 10  # ELEMENTS: of the y of a micro-batch
SCALE, GROWTH = 1024.0, 2  # the first scale, and after how many good steps in a row it doubles
LR, MOMENTUM = 0.1, 0.5
LARGEST = 65504.0  # of float16
# Overflows: (update, rank, micro-batch, target), -1 for the last. The first one comes after one good step: the count of
# these begins anew. The second target's gradient is too large only when
# it is scaled, and its loss is finite.
OVERFLOWS = ((1, -1, 0, 3e38), (4, 0, -1, 1e4))
SHAPES = {"0.weight": (8, 5), "0.bias": (8,), "2.weight": (2, 8), "2.bias": (2,)}
Model = dict[str, torch.Tensor]


def gradients(model: Model, update: list[list[torch.Tensor]]) -> list[Model]:
    """Of the mean squared error of each micro-batch alone, in float64. By hand: autograd takes four times as long."""
    w = {name: value.double() for name, value in model.items()}
    found = []
    for x, y in ((x.double(), y.double()) for x, y in update):
        hidden = torch.tanh(x @ w["0.weight"].T + w["0.bias"])
        out = hidden @ w["2.weight"].T + w["2.bias"]
        of_out = (out - y) * (2 / out.numel())
        of_hidden = torch.ops.aten.tanh_backward(of_out @ w["2.weight"], hidden)
        layers = {"0": (of_hidden, x), "2": (of_out, hidden)}
        found.append(
            {f"{k}.weight": g.T @ given for k, (g, given) in layers.items()}
            | {f"{k}.bias": g.sum(0) for k, (g, _) in layers.items()}
        )
    return found


def weighted(parts: list[tuple[float, Model]]) -> Model:
    return {name: torch.stack([w * g[name] for w, g in parts]).sum(0) for name in SHAPES}


def length_of(gradient: Model) -> float:
    return math.sqrt(sum(float(g.square().sum()) for g in gradient.values()))


@dataclass(frozen=True)
class Way:
    """How updates are made. The defaults are right.

    Attributes:
        factor: what each micro-batch's gradient is multiplied by, by (its number, k, n).
        scaled: whether its loss is multiplied by the scale, by (its number, k).
        clip: "unscaled"; "scaled": before unscaling; "each": each parameter by itself; "values": each value;
            "largest": the largest value in place of the norm; "never".
        old: what is left of the old gradients, as a multiple of them.
        shared: whether the gradients are averaged over the ranks.
        left_out: micro-batches that overflow do not count, and nothing is skipped.
        again: the gradients are divided by the scale once more.
        zeros: a step with gradients of zero where it should be skipped.
        stuck: every update is skipped.
        counts_on: an overflow does not end the count of good steps.
        steps: "one" for all micro-batches, or one for "each" of them.
    """

    factor: Any = lambda i, k, n: 1 / k
    scaled: Any = lambda i, k: True
    clip: str = "unscaled"
    old: float = 0.0
    shared: bool = True
    left_out: bool = False
    again: bool = False
    zeros: bool = False
    stuck: bool = False
    counts_on: bool = False
    steps: str = "one"


def play(given: Given, way: Way, old: float) -> list[list[dict[str, Any]]]:
    """By rank, the parameters and the scale after each update; `old`: what is in the gradients before."""
    n, k = len(given), len(given[0]["updates"][0])
    models: list[Model] = [{name: w.double() for name, w in i["weights"].items()} for i in given]
    moving: list[Model] = [{name: torch.zeros_like(w) for name, w in m.items()} for m in models]
    left = way.old * old if math.isfinite(old) else 0.0
    scale, good_steps = SCALE, 0
    played: list[list[dict[str, Any]]] = [[] for _ in given]
    for u in range(UPDATES):
        batches = [i["updates"][u] for i in given]
        pieces = [[j] for j in range(k)] if way.steps == "each" else [list(range(k))]
        for piece in pieces:
            weights = [way.factor(j, k, n) * (1.0 if way.scaled(j, k) else 1 / scale) for j in piece]
            weights = [w / scale for w in weights] if way.again else weights
            # A target of 1e4 leads to an overflow only if its loss is scaled.
            bad = [
                [
                    w != 0 and float(own[j][1].abs().max()) > (1e3 if way.scaled(j, k) else 1e30)
                    for j, w in zip(piece, weights, strict=True)
                ]
                for own in batches
            ]
            skips = (any(map(any, bad)) and not way.left_out) or way.stuck
            parts = [gradients(m, [own[j] for j in piece]) for m, own in zip(models, batches, strict=True)]
            own = [
                weighted([(0.0 if b else w, g) for w, g, b in zip(weights, one, flags, strict=True)])
                for one, flags in zip(parts, bad, strict=True)
            ]
            mean = weighted([(1 / n, one) for one in own])
            for rank in range(n):
                step = mean if way.shared else own[rank]
                step = _clipped({name: g + left / scale for name, g in step.items()}, way, given[0]["max_norm"], scale)
                if skips and not way.zeros:
                    continue
                step = {name: g * (0.0 if skips else 1.0) for name, g in step.items()}
                moving[rank] = {name: MOMENTUM * v + step[name] for name, v in moving[rank].items()}
                models[rank] = {name: w - LR * moving[rank][name] for name, w in models[rank].items()}
            good_steps = good_steps + 1 if not skips else good_steps * way.counts_on
            scale, good_steps = (
                (scale / 2, good_steps) if skips else (scale * 2, 0) if good_steps == GROWTH else (scale, good_steps)
            )
        for rank, model in enumerate(models):
            result = {"parameters": {name: w.float() for name, w in model.items()}, "scale": scale}
            played[rank].append(result)
    return played


def _clipped(step: Model, way: Way, limit: float, scale: float) -> Model:
    def factor(length: float) -> float:
        return min(1.0, limit / (length * (scale if way.clip == "scaled" else 1.0) + 1e-6))

    if way.clip == "each":
        return {name: g * factor(float(g.norm())) for name, g in step.items()}
    if way.clip == "values":
        return {name: g.clamp(-limit, limit) for name, g in step.items()}
    largest = max(float(g.abs().max()) for g in step.values())
    whole = 1.0 if way.clip == "never" else factor(largest if way.clip == "largest" else length_of(step))
    return {name: g * whole for name, g in step.items()}


def wrong_ways(n: int, k: int, old: float) -> list[tuple[str, str, Way]]:
    """Codes, what is wrong, and the ways, on n ranks with k micro-batches; `old`: what is in the gradients before."""
    found: list[tuple[str, str, Way]] = []

    def add(code: str, text: str, *ways: Way) -> None:
        found.extend((code, text, way) for way in ways)

    if k > 1:
        text = f"the losses of the {k} micro-batches are not divided by {k}: the gradient is {k} times too long"
        add("DTL-VALUE-FACTOR", text, Way(factor=lambda i, k, n: 1.0))
        text = f"only the last of {k} micro-batches is in the gradient: zero_grad emptied it between them?"
        only = (lambda i, k, n: (i == k - 1) / k), (lambda i, k, n: float(i == k - 1))
        add("DTL-VALUE-LAST-ONLY", text, *(Way(factor=f) for f in only))
        text = "only the last micro-batch's loss is multiplied by the scale, and the gradients of all are divided by it"
        add("DTL-VALUE-NOT-SCALED", text, Way(scaled=lambda i, k: i == k - 1))
        text = f"each of the {k} micro-batches makes a step of its own: there is one step for all of them"
        add("DTL-VALUE-STEP-EACH", text, *(Way(steps="each", factor=f) for f in (Way().factor, lambda i, k, n: 1.0)))
    add(
        "DTL-VALUE-CLIP-SCALED",
        "the gradients are clipped while they are still scaled, so they are too short by the scale: unscale_ comes "
        "before clip_grad_norm_",
        Way(clip="scaled"),
    )
    text = "no loss is multiplied by the scale, and the gradients are divided by it: scaler.scale(loss).backward()"
    add("DTL-VALUE-NOT-SCALED", text, Way(scaled=lambda i, k: False))
    text = "the gradients are divided by the scale twice: unscale_ has done so, or step would have"
    add("DTL-VALUE-UNSCALED-TWICE", text, Way(again=True))
    text = f"the loss is the sum of the squared errors: their mean is asked for, over the {ELEMENTS} numbers of a y"
    add("DTL-VALUE-FACTOR", text, Way(factor=lambda i, k, n: ELEMENTS / k))
    text = "each parameter is clipped by itself: max_norm is for the gradient of all together"
    add("DTL-VALUE-CLIP", text, Way(clip="each"))
    text = "each value is clipped to max_norm by itself, which changes the gradient's direction: clip its norm"
    add("DTL-VALUE-BY-VALUE", text, Way(clip="values"))
    text = (
        "the gradient is clipped by its largest absolute value: the norm is the square root of the sum of all squares"
    )
    add("DTL-VALUE-OTHER-NORM", text, Way(clip="largest"))
    add("DTL-VALUE-CLIP", "gradients longer than max_norm are not clipped, or too late", Way(clip="never"))
    text = "the gradients of the step before are still in: begin with zero_grad"
    add("DTL-VALUE-OLD", text, Way(old=1.0), Way(old=1 / n))
    text = (
        "after an overflow the optimizer steps with zeros, and its momentum still moves the parameters: do not call it"
    )
    add("DTL-VALUE-NOT-SKIPPED", text, Way(zeros=True))
    text = (
        "after an overflow the scaler counts good steps on: scaler.update() begins anew, and update(new_scale) does not"
    )
    add("DTL-VALUE-COUNT-KEPT", text, Way(counts_on=True))
    if math.isinf(old):
        text = "every step is skipped, because infinities of the step before are still in (0 * inf is NaN): zero_grad()"
        add("DTL-VALUE-OLD", text, Way(stuck=True))
    text = "a micro-batch that overflows is left out, and a step is made with the others: skip the step"
    add("DTL-VALUE-DROPPED", text, Way(left_out=True))
    if n > 1:
        text = "no backward pass averaged over the ranks: each steps with the gradient of its own micro-batches"
        add("DTL-VALUE-NO-SYNC", text, Way(shared=False))
        text = (
            f"the gradients are divided by {n} once more than they should be: DDP makes the mean over the ranks itself"
        )
        add("DTL-VALUE-FACTOR", text, Way(factor=lambda i, k, n: 1 / (k * n)))
    return found
