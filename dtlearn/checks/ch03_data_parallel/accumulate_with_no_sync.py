"""ch03.accumulate_with_no_sync: two updates of a model under torch's DDP, cut into three buckets."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import mse_loss

from dtlearn.grading import Case, Check, Finding, Given, Mistake, compare
from dtlearn.runtime.record.record import Record

from ..passes import find_wrong_passes

_UPDATES = 2
_ROWS = 5  # no world size, so that a division by one is not taken for one by the other
_OLD = 7.0  # what `on_rank` leaves in every gradient, as from an earlier step
_CASES: dict[str, dict[str, int]] = {
    "3 micro-batches": {"k": 3},
    "1 micro-batch": {"k": 1},
}


def inputs(case: Case) -> Given:
    g = case.generator()
    weights = {f"{layer}.{name}": torch.randn(shape, generator=g) for layer, name, shape in _shapes()}
    given = []
    for rank in range(case.world_size):
        updates = [
            [[torch.randn(_ROWS, 5, generator=g) + rank, torch.randn(_ROWS, 2, generator=g)] for _ in range(k)]
            for k in [case.params["k"]] * _UPDATES
        ]
        given.append({"weights": weights, "updates": updates, "old": _OLD})
    return given


def _shapes() -> list[tuple[int, str, tuple[int, ...]]]:
    return [(0, "weight", (8, 5)), (0, "bias", (8,)), (2, "weight", (2, 8)), (2, "bias", (2,))]


def on_rank(answer: Any, weights: Any, updates: Any, old: float) -> Any:
    module: Any = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    module.load_state_dict(weights)
    model: Any = torch.nn.parallel.DistributedDataParallel(module, bucket_cap_mb=1e-4)
    for _ in range(2):  # DDP forms its buckets after the first backward pass
        model(updates[0][0][0]).sum().backward()
    forward, backward, inner = [], [], []
    model.register_forward_pre_hook(lambda *_: forward.append(model.require_backward_grad_sync))
    module.register_forward_pre_hook(lambda *_: inner.append(True))
    module[2].bias.register_hook(lambda _: backward.append(model.require_backward_grad_sync))
    notes = []
    for micro_batches in updates:
        for parameter in module.parameters():
            parameter.grad = torch.full_like(parameter, old)
        answer(model, [tuple(pair) for pair in micro_batches])
        grads = {name: p.grad if p.grad is None else p.grad.clone() for name, p in module.named_parameters()}
        passes = {"forward": list(forward), "backward": list(backward), "inner": len(inner)}
        moved = [name for name, value in module.state_dict().items() if not torch.equal(value, weights[name])]
        notes.append({"grads": grads, "moved": moved, **passes})
        forward.clear()
        backward.clear()
        inner.clear()
    return notes


def _gradients(given: Given) -> list[list[list[list[torch.Tensor]]]]:
    """The gradient of each micro-batch alone: [rank][update][micro-batch][parameter]."""
    module = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    module.load_state_dict(given[0]["weights"])
    module.double()

    def gradient(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        loss = mse_loss(module(x.double()), y.double())
        return [g.float() for g in torch.autograd.grad(loss, tuple(module.parameters()))]

    return [[[gradient(x, y) for x, y in update] for update in i["updates"]] for i in given]


def _weighted(parts: list[tuple[float, list[torch.Tensor]]]) -> list[torch.Tensor]:
    return [torch.stack([w * t for (w, _), t in zip(parts, column, strict=True)]).sum(0) for column in _columns(parts)]


def _columns(parts: list[tuple[float, list[torch.Tensor]]]) -> list[tuple[torch.Tensor, ...]]:
    return list(zip(*[tensors for _, tensors in parts], strict=True))


def _named(updates: list[list[torch.Tensor]]) -> dict[str, dict[str, torch.Tensor]]:
    """As messages name them: of each update, the gradient of each parameter."""
    names = [f"{layer}.{name}" for layer, name, _ in _shapes()]
    return {f"update {u + 1}": dict(zip(names, grads, strict=True)) for u, grads in enumerate(updates)}


def _right(case: Case, given: Given) -> list[dict[str, dict[str, torch.Tensor]]]:
    """What each rank should have."""
    alone, k, n = _gradients(given), case.params["k"], case.world_size
    mean = [_weighted([(1 / (k * n), g) for rank in alone for g in rank[u]]) for u in range(_UPDATES)]
    return [_named(mean)] * n


def _mistakes(case: Case, given: Given) -> list[Mistake]:
    alone, k, n = _gradients(given), case.params["k"], case.world_size
    updates, ranks, right, late = range(_UPDATES), range(case.world_size), _right(case, given), 1 / n

    def by(update: int) -> list[list[list[torch.Tensor]]]:
        return [rank[update] for rank in alone]

    found = [
        Mistake(
            "DTL-VALUE-OLD",
            "the gradients of the step before are still in: a backward pass adds to p.grad, so begin with zero_grad",
            [{u: {name: t + old for name, t in update.items()} for u, update in rank.items()} for rank in right],
        )
        for old in (_OLD, _OLD / n)
    ]
    if k > 1:
        found.append(
            Mistake(
                "DTL-VALUE-LAST-ONLY",
                f"only the last of {k} micro-batches is in the gradient: zero_grad emptied it between them?",
                [_named([_weighted([(1 / (k * n), alone[r][u][-1]) for r in ranks]) for u in updates])] * n,
            )
        )
        found.append(
            Mistake(
                "DTL-VALUE-LAST-WHOLE",
                f"the last of {k} micro-batches is not divided by {k}, as the others are: it weighs {k} times as much",
                [
                    _named(
                        [_weighted([(late if g is m[-1] else late / k, g) for m in by(u) for g in m]) for u in updates]
                    )
                ]
                * n,
            )
        )
        weights = {
            "DTL-VALUE-LAST-WHOLE": (
                f"only the last of {k} micro-batches is divided by {k}: the others weigh {k} times as much",
                [late] * (k - 1) + [late / k],
            ),
            "DTL-VALUE-DIVIDED-AGAIN": (
                f"what was added up is divided by {k} after every micro-batch, so the first is divided {k} times: "
                "divide each loss, or the sum once at the end",
                [late / k ** (k - i) for i in range(k)],
            ),
        }
        for code, (text, each) in weights.items():
            grads = [_weighted([(w, g) for m in by(u) for w, g in zip(each, m, strict=True)]) for u in updates]
            found.append(Mistake(code, text, [_named(grads)] * n))
    if n > 1:
        found.append(
            Mistake(
                "DTL-VALUE-NO-SYNC",
                "every rank still has the mean of its own micro-batches: no backward pass averaged over the ranks",
                [_named([_weighted([(1 / k, g) for g in alone[r][u]]) for u in updates]) for r in ranks],
            )
        )
    if n > 1 and k > 1:
        found += [
            Mistake(
                "DTL-VALUE-SYNC-FIRST",
                "only the first micro-batch is averaged over the ranks, the others are each rank's own: the last "
                "backward pass is the one that has to communicate, with all that was added up before",
                [
                    _named(
                        [
                            _weighted(
                                [(1 / (k * n), alone[s][u][0]) for s in ranks] + [(1 / k, g) for g in alone[r][u][1:]]
                            )
                            for u in updates
                        ]
                    )
                    for r in ranks
                ],
            )
        ]
    return found


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    """The passes of each micro-batch, then the gradients."""
    k = case.params["k"]
    for rank, notes in enumerate(got):
        for note in notes:
            if note["moved"]:
                text = (
                    f"rank {rank} changed {note['moved'][0]}, a parameter: the optimizer step comes later, and is not "
                )
                return Finding("DTL-VALUE-PARAMETERS", f"{text}yours", rank)
            if found := find_wrong_passes(rank, k, note["forward"], note["backward"], note["inner"]):
                return found
    named = [{f"update {u + 1}": note["grads"] for u, note in enumerate(notes)} for notes in got]
    found = compare(_GRADS, case, given, _right(case, given), named)
    if found and not any(flag for notes in got for note in notes for flag in note["forward"]):
        text = "the last micro-batch is within no_sync() too: so no backward pass averages over the ranks. Does the "
        text += "condition, or the divisor, contain a fixed number? Use len(micro_batches)"
        return Finding("DTL-VALUE-NO-SYNC", text, found.rank)
    return found


def rule(case: Case, given: Given, record: Record) -> Finding | None:
    """The gradients go over the network once in an update."""
    most = _UPDATES * payload(case, given)
    for rank in range(case.world_size):
        made = record.nbytes(rank=rank)
        if made > most:
            text = f"rank {rank} handed over {made / most:.2f}x the bytes of its gradients in an update; once is enough"
            return Finding("DTL-RULE-BYTES", text, rank)
    return None


def payload(case: Case, given: Given) -> int:
    return sum(4 * int(t.numel()) for t in given[0]["weights"].values())


def _factors(case: Case) -> dict[float, str]:
    k, elements = case.params["k"], _ROWS * 2
    rows = f"{k} / {_ROWS}, a division by the {_ROWS} rows of a micro-batch in place of the {k} micro-batches"
    found = {
        k: "the number of micro-batches",
        k / _ROWS: rows if k > 1 else "one over the number of rows of a micro-batch",
        elements: "the number of elements of a micro-batch's y (a sum over them?)",
    }
    return {**found, k / (k - 1): f"{k} / {k - 1}, a division by {k - 1}"} if k > 2 else found


_GRADS = Check(on_rank, inputs, _right, cases=_CASES, mistakes=_mistakes, factors=_factors, rtol=1e-4, atol=1e-5)
CHECK = Check(
    on_rank,
    inputs,
    None,
    cases=_CASES,
    verify=verify,
    rules=[rule],
    payload=payload,
    calls=lambda case: _UPDATES,
)
