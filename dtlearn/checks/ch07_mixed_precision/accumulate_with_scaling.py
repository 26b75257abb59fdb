"""ch07.accumulate_with_scaling: five updates under torch's DDP, of which two overflow, each on one rank.

The model is float32, in which a scale changes no result; a target near the largest number of float32 overflows when its
gradient is scaled. Wrong answers are played in the judge, in float64.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import mse_loss

from dtlearn.grading import Case, Check, Finding, Given, Mistake, compare
from dtlearn.runtime.record.record import Record

from ..passes import find_wrong_passes

_UPDATES, _ROWS = 5, 5
_SCALE, _GROWTH = 1024.0, 2  # the first scale, and after how many good steps in a row it doubles
_LR, _OLD = 0.1, 8192.0  # _OLD: what is in every gradient before, as from an earlier step
_HUGE = 3e38
# `limit`: max_norm as a multiple of the first gradient's norm. Overflows: (update, rank, micro-batch), -1 for the last.
_OVERFLOWS = ((2, -1, 0), (3, 0, -1))
_CASES: dict[str, dict[str, float]] = {
    "3 micro-batches": {"k": 3, "limit": 1e6},
    "3 micro-batches, long gradients": {"k": 3, "limit": 0.25},
    "1 micro-batch": {"k": 1, "limit": 0.25},
}
_SHAPES = {"0.weight": (8, 5), "0.bias": (8,), "2.weight": (2, 8), "2.bias": (2,)}
_Model = dict[str, torch.Tensor]


def inputs(case: Case) -> Given:
    g, k, n = case.generator(), int(case.params["k"]), case.world_size
    weights = {name: torch.randn(shape, generator=g) for name, shape in _SHAPES.items()}
    given: Given = []
    for rank in range(n):
        updates = [
            [[torch.randn(_ROWS, 5, generator=g) + rank, torch.randn(_ROWS, 2, generator=g)] for _ in range(k)]
            for _ in range(_UPDATES)
        ]
        for update, who, micro_batch in _OVERFLOWS:
            if rank == who % n:
                updates[update][micro_batch][1][0, 0] = _HUGE
        given.append({"weights": weights, "updates": updates, "scale": _SCALE, "growth": _GROWTH})
    first = [_gradients(weights, i["updates"][0]) for i in given]
    norm = _length(_weighted([(1 / (k * n), one) for own in first for one in own]))
    for i in given:
        i |= {"lr": _LR, "old": _OLD, "max_norm": case.params["limit"] * norm}
    return given


def on_rank(
    answer: Any, weights: Any, updates: Any, scale: float, growth: int, lr: float, old: float, max_norm: float
) -> Any:
    module: Any = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    module.load_state_dict(weights)
    model: Any = torch.nn.parallel.DistributedDataParallel(module, bucket_cap_mb=1e-4)
    for _ in range(2):  # DDP forms its buckets after the first backward pass
        model(updates[0][0][0]).sum().backward()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    scaler = torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=growth)
    forward, backward, inner = [], [], []
    model.register_forward_pre_hook(lambda *_: forward.append(model.require_backward_grad_sync))
    module.register_forward_pre_hook(lambda *_: inner.append(True))
    module[2].bias.register_hook(lambda _: backward.append(model.require_backward_grad_sync))
    notes = []
    for micro_batches in updates:
        for parameter in module.parameters():
            parameter.grad = torch.full_like(parameter, old)
        answer(model, [tuple(pair) for pair in micro_batches], scaler, optimizer, max_norm)
        values = {name: value.clone() for name, value in module.state_dict().items()}
        passes = {"forward": list(forward), "backward": list(backward), "inner": len(inner)}
        notes.append({"parameters": values, "scale": scaler.get_scale(), **passes})
        forward.clear()
        backward.clear()
        inner.clear()
    return notes


def _gradients(model: _Model, update: list[list[torch.Tensor]]) -> list[_Model]:
    """Of the mean squared error of each micro-batch alone, in float64."""
    found = []
    for x, y in update:
        w = {name: value.double().requires_grad_() for name, value in model.items()}
        out = torch.tanh(x.double() @ w["0.weight"].T + w["0.bias"]) @ w["2.weight"].T + w["2.bias"]
        found.append(dict(zip(w, torch.autograd.grad(mse_loss(out, y.double()), tuple(w.values())), strict=True)))
    return found


def _weighted(parts: list[tuple[float, _Model]]) -> _Model:
    return {name: torch.stack([w * g[name] for w, g in parts]).sum(0) for name in _SHAPES}


def _length(gradient: _Model) -> float:
    return math.sqrt(sum(float(g.square().sum()) for g in gradient.values()))


@dataclass(frozen=True)
class _Way:
    """How updates are made. The defaults are right.

    Attributes:
        factor: what each micro-batch's gradient is multiplied by, by (its number, k, n).
        clip: "unscaled"; "scaled": before unscaling; "never".
        old: what is left of the old gradients, as a multiple of them.
        shared: whether the gradients are averaged over the ranks.
        left_out: micro-batches that overflow do not count, and nothing is skipped.
        steps: "one" for all micro-batches, or one for "each" of them.
    """

    factor: Any = lambda i, k, n: 1 / k
    clip: str = "unscaled"
    old: float = 0.0
    shared: bool = True
    left_out: bool = False
    steps: str = "one"


def _play(case: Case, given: Given, way: _Way) -> list[dict[str, Any]]:
    """By rank, the parameters and the scale after each update."""
    n, k = case.world_size, int(case.params["k"])
    models: list[_Model] = [{name: w.double() for name, w in i["weights"].items()} for i in given]
    scale, good_steps = _SCALE, 0
    played: list[dict[str, Any]] = [{} for _ in given]
    for u in range(_UPDATES):
        batches = [i["updates"][u] for i in given]
        pieces = [[j] for j in range(k)] if way.steps == "each" else [list(range(k))]
        for piece in pieces:
            counts = [way.factor(j, k, n) != 0 for j in piece]
            bad = [
                [c and float(own[j][1].abs().max()) > 1e30 for j, c in zip(piece, counts, strict=True)]
                for own in batches
            ]
            skips = any(map(any, bad)) and not way.left_out
            parts = [_gradients(m, [own[j] for j in piece]) for m, own in zip(models, batches, strict=True)]
            own = [
                _weighted([(0.0 if b else way.factor(j, k, n), g) for j, g, b in zip(piece, one, flags, strict=True)])
                for one, flags in zip(parts, bad, strict=True)
            ]
            mean = _weighted([(1 / n, one) for one in own])
            for rank in range(n):
                step = mean if way.shared else own[rank]
                step = {name: g + way.old * _OLD / scale for name, g in step.items()}
                length = _length(step) * (scale if way.clip == "scaled" else 1.0)
                factor = 1.0 if way.clip == "never" else min(1.0, given[0]["max_norm"] / (length + 1e-6))
                if not skips:
                    models[rank] = {name: w - _LR * factor * step[name] for name, w in models[rank].items()}
            good_steps = 0 if skips else good_steps + 1
            scale, good_steps = (
                (scale / 2, 0) if skips else (scale * 2, 0) if good_steps == _GROWTH else (scale, good_steps)
            )
        for rank, model in enumerate(models):
            result = {"parameters": {name: w.float() for name, w in model.items()}, "scale": scale}
            played[rank][_title(case, u)] = result
    return played


def _title(case: Case, update: int) -> str:
    for at, who, micro_batch in _OVERFLOWS:
        if at == update:
            place = "first" if micro_batch == 0 else "last"
            return f"update {update}, with an overflow on rank {who % case.world_size}, {place} micro-batch"
    return f"update {update}"


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    return _play(case, given, _Way())


def mistakes(case: Case, given: Given) -> list[Mistake]:
    n, k = case.world_size, int(case.params["k"])
    found: list[Mistake] = []

    def add(code: str, text: str, *ways: _Way) -> None:
        found.extend(Mistake(code, text, _play(case, given, way)) for way in ways)

    if k > 1:
        text = f"the losses of the {k} micro-batches are not divided by {k}: the gradient is {k} times too long"
        add("DTL-VALUE-FACTOR", text, _Way(factor=lambda i, k, n: 1.0))
        text = f"only the last of {k} micro-batches is in the gradient: zero_grad emptied it between them?"
        only = (lambda i, k, n: (i == k - 1) / k), (lambda i, k, n: float(i == k - 1))
        add("DTL-VALUE-LAST-ONLY", text, *(_Way(factor=f) for f in only))
        text = f"each of the {k} micro-batches makes a step of its own: there is one step for all of them"
        add("DTL-VALUE-STEP-EACH", text, *(_Way(steps="each", factor=f) for f in (_Way().factor, lambda i, k, n: 1.0)))
    add(
        "DTL-VALUE-CLIP-SCALED",
        "the gradients are clipped while they are still scaled, so they are too short by the scale: unscale_ comes "
        "before clip_grad_norm_",
        _Way(clip="scaled"),
    )
    add("DTL-VALUE-CLIP", "gradients longer than max_norm are not clipped, or too late", _Way(clip="never"))
    text = "the gradients of the step before are still in: begin with zero_grad"
    add("DTL-VALUE-OLD", text, _Way(old=1.0), _Way(old=1 / n))
    text = "a micro-batch that overflows is left out, and a step is made with the others: skip the step"
    add("DTL-VALUE-DROPPED", text, _Way(left_out=True))
    if n > 1:
        text = "no backward pass averaged over the ranks: each steps with the gradient of its own micro-batches"
        add("DTL-VALUE-NO-SYNC", text, _Way(shared=False))
    return found


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    """The passes of each micro-batch; what was not skipped; then the values, with the updates' descriptions."""
    k, titles = int(case.params["k"]), [_title(case, u) for u in range(_UPDATES)]
    named = []
    for rank, notes in enumerate(got):
        if not _is_readable(notes):
            return Finding("DTL-RESULT", f"rank {rank} sent no readable result", rank)
        for update, note in enumerate(notes):
            if len(note["backward"]) < len(note["forward"]) and "overflow" in titles[update]:
                text = (
                    f"rank {rank} made no backward pass for a micro-batch whose loss is infinite: it is left out, and "
                )
                return Finding("DTL-VALUE-DROPPED", f"{text}the step has to be skipped, on all ranks", rank)
            if found := find_wrong_passes(rank, k, note["forward"], note["backward"], note["inner"]):
                return found
        named.append(
            {t: {name: note[name] for name in ("parameters", "scale")} for t, note in zip(titles, notes, strict=True)}
        )
    for title in titles:
        for rank, one in enumerate(named):
            values = one[title]["parameters"].values()
            if not all(isinstance(v, torch.Tensor) and bool(v.isfinite().all()) for v in values):
                text = f"after {title}, parameters of rank {rank} are infinite or NaN: such a step has to be skipped"
                return Finding("DTL-VALUE-NOT-SKIPPED", f"{text}; scaler.step(optimizer) does so", rank)
    right = expected(case, given)
    found = compare(_VALUES, case, given, right, named)
    if found and not any(flag for notes in got for note in notes for flag in note["forward"]):
        text = "the last micro-batch is within no_sync() too: so no backward pass averages over the ranks"
        return Finding("DTL-VALUE-NO-SYNC", text, found.rank)
    if found and found.code == "DTL-VALUE":
        for title in titles:
            for rank, one in enumerate(named):
                if (scale := one[title]["scale"]) != right[rank][title]["scale"]:
                    text = f"after {title}, the scale of rank {rank} is {scale:g}, and should be "
                    text += f"{right[rank][title]['scale']:g}: this scaler looks at the gradients of each update, and "
                    return Finding("DTL-VALUE-SCALE", f"{text}is updated once, skipped or not", rank)
    return found


def _is_readable(notes: Any) -> bool:
    """Whether this is what `on_rank` returns: a learner's process could send anything."""
    keys = {"parameters": dict, "scale": float, "forward": list, "backward": list, "inner": int}
    return (
        isinstance(notes, list)
        and len(notes) == _UPDATES
        and all(
            isinstance(note, dict) and set(note) == set(keys) and all(isinstance(note[k], keys[k]) for k in keys)
            for note in notes
        )
    )


def payload(case: Case, given: Given) -> int:
    return sum(4 * int(t.numel()) for t in given[0]["weights"].values())


_VALUES = Check(on_rank, inputs, expected, cases=_CASES, mistakes=mistakes, rtol=1e-3, atol=1e-4)
CHECK = Check(on_rank, inputs, None, cases=_CASES, verify=verify, payload=payload, calls=lambda case: _UPDATES)
