"""ch09.bug_hunt: a training loop with ZeRO stage 1, with gradients that are clipped and that are not.

What a wrong loop leads to is played in the judge, in float64. In a last training each rank adds noise of its own to the
parameters before each step but the first. With ZeRO all ranks have the owner's values after the step; whoever updates
the whole model on each rank, by hand or in arrays that no optimizer knows, then has another model on each.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import torch

from dtlearn.grading import Case, Check, Finding, Given, Mistake, compare, difference
from dtlearn.runtime.record.record import Record

from ..sent import no_silent_rank, no_stores

_ROWS, _MOMENTUM = 4, 0.9
# Of each training: steps, max_norm as a multiple of the first norm, lr, and the number of elements.
_TRAININGS = {"short gradients": (3, 1e6, 0.1, 4), "long gradients": (4, 0.3, 0.2, 6), "one step": (1, 0.5, 0.15, 4)}
_NOISY = "noise"  # the last training; its values are not compared with right ones
_SAYS = {
    "own": (
        "DTL-VALUE-OWN-NORM",
        "each rank clips its shard by the norm of that shard alone: the squares of all ranks make the norm",
    ),
    "early": (
        "DTL-VALUE-CLIP",
        "each rank clips the gradient of its own batch: the mean over the ranks is clipped",
    ),
    "added": (
        "DTL-VALUE-SUM-OF-NORMS",
        "the norms of the shards are added up: the squares add up, and then comes the root",
    ),
    "never": ("DTL-VALUE-CLIP", "long gradients are not clipped"),
    "last": (
        "DTL-VALUE-NOT-GATHERED",
        "after the last step each rank has the new values of its own shard only: they are gathered after each step, "
        "not before the next",
    ),
    "nowhere": ("DTL-VALUE-NOT-GATHERED", "updated shards reach no other rank: they are gathered in each step"),
    "rank 0": (
        "DTL-VALUE-STATE-OF-ONE",
        "the state that is returned has the shard of rank 0 only, and zeros for the others",
    ),
    "own state": (
        "DTL-VALUE-STATE-OF-ONE",
        "the state that each rank returns has its own shard only, and zeros for the others",
    ),
    "sum": ("DTL-VALUE-SUM", "the gradients are added up over the ranks, and not divided by their number"),
    "local": ("DTL-VALUE-NO-SYNC", "each rank updates its shard by the gradient of its own batch"),
}


@dataclass(frozen=True)
class _Run:
    """How a loop is played. The defaults are right; other values are keys of `_SAYS`."""

    clip: str = ""
    gather: str = ""
    saved: str = ""
    mean: str = ""

    @property
    def wrong(self) -> list[str]:
        return [name for name in (self.clip, self.gather, self.saved, self.mean) if name]


_AS_FOUND = _Run("own", "last", "rank 0")
_UNCHANGED = (
    "DTL-VALUE-AS-FOUND",
    f"all {len(_TRAININGS)} trainings end as with the program as it was found, and all are wrong. In the first, whose "
    "gradients are shorter than max_norm, the ranks have different parameters at the end; they should have the same",
)


def inputs(case: Case) -> Given:
    g, n = case.generator(), case.world_size
    slope = torch.tensor([[1.0, -2.0, 1.5, 0.5, -1.0]]).T
    given: Given = [{"trainings": {}} for _ in range(n)]
    for name, (steps, limit, lr, size) in {**_TRAININGS, _NOISY: (3, 0.5, 0.1, 5)}.items():
        start = 0.3 * torch.randn(size, generator=g)
        batches = []
        for rank in range(n):
            x = torch.randn(steps, _ROWS, size - 1, generator=g) + 0.3
            batches.append([[one, one @ slope[: size - 1] + 1.0 + rank] for one in x])
        first = [_gradient(start.double(), *own[0]) for own in batches]
        max_norm = limit * float(torch.stack(first).mean(0).norm())
        for rank in range(n):
            noises = [[0.1 * torch.randn(k, generator=g) for k in ((1, size - 1), (1,))] for _ in range(steps - 1)]
            training = {"start": start, "batches": batches[rank], "lr": lr, "max_norm": max_norm}
            training["noises"] = [(), *noises] if name == _NOISY else []
            given[rank]["trainings"][name] = training
    return given


def on_rank(answer: Any, trainings: Any) -> Any:
    from torch.optim.optimizer import register_optimizer_step_post_hook

    held = [0]

    def note(optimizer: Any, *_: Any) -> None:
        tensors = [t for state in optimizer.state.values() for t in state.values() if isinstance(t, torch.Tensor)]
        held[0] = max(held[0], sum(t.numel() for t in tensors))

    hook, notes = register_optimizer_step_post_hook(note), {}
    for name, training in trainings.items():
        model = torch.nn.Linear(len(training["start"]) - 1, 1)
        start = training["start"].clone()
        model.load_state_dict({"weight": start[None, :-1], "bias": start[-1:]})
        pairs = [tuple(pair) for pair in training["batches"]]
        noises = iter(training["noises"])

        def add_noise(module: Any, _: Any) -> None:
            for p, noise in zip(module.parameters(), next(noises, ())):  # noqa: B023, B905
                p.data += noise

        model.register_forward_pre_hook(add_noise)
        momentum = answer(model, pairs, lr=training["lr"], max_norm=training["max_norm"])
        notes[name] = {"parameters": torch.cat([p.detach().flatten() for p in model.parameters()]), "state": momentum}
    hook.remove()
    return {"trained": notes, "held": held[0]}


def _gradient(model: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    error = 2 * (x.double() @ model[:-1] + model[-1] - y.double()[:, 0]) / len(x)
    return torch.cat([error @ x.double(), error.sum()[None]])


def _clipped(gradient: torch.Tensor, limit: float) -> torch.Tensor:
    return gradient * min(1.0, limit / (float(gradient.norm()) + 1e-6))


def _play(given: Given, run: _Run) -> list[dict[str, dict[str, torch.Tensor]]]:
    """By rank, what each training leads to."""
    n = len(given)
    played: list[dict[str, dict[str, torch.Tensor]]] = [{} for _ in given]
    for name, (steps, _, lr, size) in _TRAININGS.items():
        owned = torch.arange(size) // -(-size // n)  # the rank of each element
        of_ranks = [i["trainings"][name] for i in given]
        limit, momentum = of_ranks[0]["max_norm"], torch.zeros(size).double()
        models = [one["start"].double() for one in of_ranks]
        for step in range(steps):
            own = [_gradient(m, *one["batches"][step]) for m, one in zip(models, of_ranks, strict=True)]
            own = [_clipped(g, limit) for g in own] if run.clip == "early" else own
            mean = torch.stack(own).mean(0) * (n if run.mean == "sum" else 1)
            if run.mean == "local":
                mean = torch.stack([own[int(r)][e] for e, r in enumerate(owned)])
            if run.clip == "own":
                parts = [_clipped(torch.where(owned == r, mean, 0.0), limit) for r in range(n)]
                mean = torch.stack(parts).sum(0)
            elif run.clip == "added":
                mean = mean * min(1.0, limit / sum(float(mean[owned == r].norm()) for r in range(n)))
            elif not run.clip:
                mean = _clipped(mean, limit)
            momentum = _MOMENTUM * momentum + mean
            true = torch.stack([models[int(r)][e] for e, r in enumerate(owned)]) - lr * momentum
            partly = run.gather == "nowhere" or (run.gather == "last" and step == steps - 1)
            models = [torch.where(owned == r, true, m) if partly else true for r, m in enumerate(models)]
        for rank, model in enumerate(models):
            who = {"rank 0": 0, "own state": rank}.get(run.saved)
            state = momentum if who is None else torch.where(owned == who, momentum, 0.0)
            played[rank][name] = {"parameters": model.float(), "state": state.float()}
    return played


def expected(case: Case, given: Given) -> list[Any]:
    return _play(given, _Run())


def mistakes(case: Case, given: Given) -> list[Mistake]:
    every = product(("", "own", "early", "never", "added"), ("", "last", "nowhere"), ("", "rank 0", "own state"))
    runs = [_Run(*one) for one in every] + [_Run(mean=mean) for mean in ("sum", "local")]
    found = []
    for run in sorted(runs, key=lambda run: len(run.wrong)):
        if says := [_SAYS[name] for name in run.wrong]:  # of several mistakes one is named: the others are to be found
            code, text = says[0] if run != _AS_FOUND else _UNCHANGED
            found.append(Mistake(code, text + "; and that is not all" * (1 < len(says) < 3), _play(given, run)))
    return found


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    for rank, one in enumerate(got):
        if not isinstance(one, dict) or set(one) != {"trained", "held"}:
            return Finding("DTL-RESULT", f"rank {rank} sent no readable result", rank)
    trained = [{name: one["trained"][name] for name in _TRAININGS} for one in got]
    right = expected(case, given)
    start = [{t: i["trainings"][t]["start"] for t in _TRAININGS} for i in given]
    ends = [{t: one[t]["parameters"] for t in _TRAININGS} for one in trained]
    if not any(difference(s, e, 0, 0) for s, e in zip(start, ends, strict=True)):
        return Finding("DTL-VALUE-STALE", "the parameters are on every rank what they were: nothing was trained", 0)
    if found := compare(_VALUES, case, given, right, trained):
        return found
    most = -(-max(size for *_, size in _TRAININGS.values()) // case.world_size)
    for rank, one in enumerate(got):
        if one["held"] > most:
            text = f"rank {rank}'s optimizer has {one['held']} elements of state, and a shard has {most}: with ZeRO "
            return Finding("DTL-RULE-WHOLE-STATE", f"{text}each rank has its shard's only", rank)
    noisy = [one["trained"][_NOISY]["parameters"] for one in got]
    if apart := [rank for rank, model in enumerate(noisy) if difference(noisy[0], model, 1e-4, 1e-4)]:
        text = (
            f"before a step the parameters were changed, on each rank by other noise, and after it rank {apart[0]}'s "
        )
        text += (
            "differ from rank 0's: it does not take what another rank owns from that rank. So each rank updates the "
        )
        return Finding("DTL-RULE-WHOLE-STATE", f"{text}whole model, with the momentum of all of it", apart[0])
    return None


_VALUES = Check(on_rank, inputs, expected, mistakes=mistakes, rtol=2e-4, atol=2e-5)
CHECK = replace(
    _VALUES,
    expected=None,
    verify=verify,
    rules=[no_silent_rank(least_calls=lambda case, given: 2 * sum(steps for steps, *_ in _TRAININGS.values()))],
    calls=lambda case: len(_TRAININGS) + 1,
    reads=[no_stores],
)
