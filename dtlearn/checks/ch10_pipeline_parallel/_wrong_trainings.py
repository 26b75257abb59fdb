"""What training two stages leads to in ch10.two_stages: as it should be, and in wrong ways."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from dtlearn.grading import Given


def build(spec: Any) -> torch.nn.Sequential:
    class Transpose(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.mT

    return torch.nn.Sequential(
        *(Transpose() if one[0] == "mT" else getattr(torch.nn, one[0])(*one[1:]) for one in spec)
    )


@dataclass(frozen=True)
class Way:
    """How the two halves are trained.

    Attributes:
        back: the gradient that the first stage gets: "" for the right one, "none", "ones", "sum" of those of all
            batches so far.
        zeroed: whether the gradients of batches before are gone; of both stages, or of one of them.
        stepped: which optimizers make a step.
        at_end: one step is made after all batches.
        late: each step is made in the next batch, before its forward pass, so that the last one is missing.
    """

    back: str = ""
    zeroed: tuple[bool, bool] = (True, True)
    stepped: tuple[bool, bool] = (True, True)
    at_end: bool = False
    late: bool = False


_ADDED = "from the second batch on, the gradients of the batches before are added"
WAYS = (
    (
        "FIRST-UNTRAINED",
        "the first stage's parameters are as they were: no gradient reached them, or its optimizer made no step",
        Way("none"),
    ),
    (
        "LAST-UNTRAINED",
        "the last stage's parameters are as they were: its optimizer made no step",
        Way(stepped=(True, False)),
    ),
    (
        "GRADIENT-OF-ONES",
        "the first stage's gradients are those of the sum of its outputs: give the gradient that came back to "
        "outputs.backward(gradient)",
        Way("ones"),
    ),
    (
        "ADDED-UP",
        "the gradients of the outputs are added up over the batches, and so sent back: the last stage needs a new "
        "tensor, or a new .grad, for each batch",
        Way("sum"),
    ),
    ("ADDED-UP", f"{_ADDED} (zero_grad() on both ranks)", Way(zeroed=(False, False))),
    ("ADDED-UP", f"{_ADDED} on the rank with the first stage", Way(zeroed=(False, True))),
    ("ADDED-UP", f"{_ADDED} on the rank with the last stage", Way(zeroed=(True, False))),
    ("ONE-STEP", "one step is made after all batches, not one for each", Way(at_end=True)),
    (
        "STEP-MISSING",
        "the step of the last batch is missing: it comes after backward, not before forward",
        Way(late=True),
    ),
)


def play(given: Given, way: Way) -> list[dict[str, Any]]:
    """By rank: of each job, losses and parameters after all batches."""
    played: list[dict[str, Any]] = [{} for _ in given]
    for number, job in enumerate(given[0]["jobs"]):
        done: set[int] = set()
        for rank, i in enumerate(given):
            job = i["jobs"][number]
            if rank not in done and job["is_first"]:
                halves = _train(job, given[job["other"]]["jobs"][number], way)
                for of, made in zip((rank, job["other"]), halves, strict=True):
                    played[of][title(given[of]["jobs"][number])] = made
    return played


def title(job: dict[str, Any]) -> str:
    return f"{job['name']}, {'first' if job['is_first'] else 'last'} stage, the other on rank {job['other']}"


def _train(first: dict[str, Any], last: dict[str, Any], way: Way) -> list[dict[str, Any]]:
    stages = [build(job["spec"]).double() for job in (first, last)]
    for stage, job in zip(stages, (first, last), strict=True):
        for p, weight in zip(stage.parameters(), job["weights"], strict=True):
            p.data = weight.double()
    optimizers = [torch.optim.SGD(stage.parameters(), **first["arguments"]) for stage in stages]
    losses, sent_back = [], torch.zeros(())
    for k, (x, target) in enumerate(zip(first["batches"], last["batches"], strict=True)):
        for optimizer, zeroed in zip(optimizers, way.zeroed, strict=True):
            if zeroed and not (way.at_end and k):
                optimizer.zero_grad()
        outputs = stages[0](x.double() if x.is_floating_point() else x)
        arrived = outputs.detach().clone().requires_grad_()
        made = stages[1](arrived)
        if last["loss"] == "cross_entropy":
            made, target = made.flatten(0, 1), target.flatten()
        target = target.double() if target.is_floating_point() else target
        loss = getattr(torch.nn.functional, last["loss"])(made, target)
        loss.backward()
        assert arrived.grad is not None
        gradient = torch.ones_like(outputs) if way.back == "ones" else arrived.grad
        if way.back == "sum" and sent_back.shape == gradient.shape:
            gradient = gradient + sent_back
        sent_back = gradient
        if way.back != "none":
            outputs.backward(gradient)
        losses.append(loss.item())
        for optimizer, steps in zip(optimizers, way.stepped, strict=True):
            is_last = k == len(first["batches"]) - 1
            if steps and (is_last or not way.at_end) and not (is_last and way.late):
                optimizer.step()
    weights = [{name: p.detach().float() for name, p in stage.named_parameters()} for stage in stages]
    return [{"losses": [], "weights": weights[0]}, {"losses": losses, "weights": weights[1]}]
