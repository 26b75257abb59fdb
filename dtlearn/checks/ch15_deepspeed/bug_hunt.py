"""ch15.bug_hunt: a training loop, each of its three bugs in a case that shows this one only.

The fixes: deepspeedai/DeepSpeed#5150 (`clip_grad_norm_` took the larger of 1 and the coefficient),
huggingface/accelerate#999 (the scheduler moved on with each micro-batch) and huggingface/accelerate#982
(`gather_for_metrics` dropped the last batch where the samples fill it).
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import mse_loss

from dtlearn.grading import Case, Check, Edit, Given, rules
from dtlearn.runtime.record.record import Record

from ..sent import no_silent_rank, no_stores
from . import MAY_HELP

# Per case: `max_norm`; `accumulation`; `missing`, samples that the last held-out batches are short of.
CASES: dict[str, dict[str, Any]] = {
    "a step for each batch": {"missing": 2},
    "gradients longer than max_norm": {
        "says": "a gradient longer than max_norm is scaled down to it",
        **{"max_norm": 0.125, "missing": 2},
    },
    "gradients shorter than max_norm": {
        "says": "a gradient shorter than max_norm stays as it is",
        **{"max_norm": 1e3, "missing": 2},
    },
    "gradient accumulation": {
        "says": "the learning rate follows the steps of the optimizer, not the batches",
        **{"accumulation": 3, "missing": 2},
    },
    "held-out samples that fill the last batches": {
        "says": "where nothing was filled up, all samples of the last batches count",
        "missing": 0,
    },
    "held-out samples that a whole batch is short of": {
        "says": "samples that fill up may be more than one rank's batch: all of them are cut",
        "missing": 4,
    },
}
# Parts of the solution; `as_found`, which stands in the same file, has each of them otherwise.
RATE = "min(1.0, number // accumulation / warmup)"
STEP = f"""        (mse_loss(model(x), y) / accumulation).backward()
        optimizer.param_groups[0]["lr"] = lr * {RATE}
"""
CLIP = "min(1.0, max_norm / (flat.norm().item() + 1e-6))"
AVERAGE = f"""        dist.all_reduce(flat)
        flat /= dist.get_world_size()
        if max_norm > 0:
            flat *= {CLIP}
        vector_to_parameters(flat, [p.grad for p in model.parameters()])
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        optimizer.zero_grad()
"""
CUT = "[: num_samples % len(everyone) or None]"
EVALUATE = f"""        everyone = torch.cat(parts)
        if number == len(held_out):  # without what fills up the last batches
            everyone = everyone{CUT}
"""


def of(text: str, changes: dict[str, str]) -> dict[str, str]:
    return {text: Edit(text, changes).applied_to(text)}


EDITS = (
    Edit("the gradient is scaled by the larger of 1 and max_norm / norm: long ones are not clipped, and short ones are "
         "lengthened", {CLIP: CLIP.replace("min", "max")}),
    Edit("the learning rate moves on with every batch: with accumulation the warm-up ends too early",
         {RATE: "min(1.0, number / warmup)"}),
    Edit("the last held-out batches are dropped where the samples fill them: num_samples % len(everyone) is 0 there, "
         "and [:0] is empty", {CUT: "[: num_samples % len(everyone)]"}),
    Edit("short gradients are lengthened to max_norm: only longer ones are scaled",
         {CLIP: "max_norm / (flat.norm().item() + 1e-6)"}),
    Edit("each element is clipped for itself, which turns the gradient: all are scaled by one factor",
         {f"flat *= {CLIP}": "flat.clamp_(-max_norm, max_norm)"}),
    Edit("each rank clips its own gradient before the average: the norm is that of the mean",
         {AVERAGE: "        if max_norm > 0:\n            flat *= min(1.0, max_norm / (flat.norm().item() + 1e-6))\n"
          + of(AVERAGE, {f"        if max_norm > 0:\n            flat *= {CLIP}\n": ""})[AVERAGE]}),
    Edit("the gradients are not clipped at all", {f"flat *= {CLIP}": "pass"}),
    Edit("the gradients are added up over the ranks: the mean is wanted",
         of(AVERAGE, {"        flat /= dist.get_world_size()\n": ""})),
    Edit("the gradients of a step are added up: the loss of each batch is divided by accumulation",
         of(STEP, {" / accumulation).backward": ").backward"})),
    Edit("only the last batch of a step counts: its gradients are accumulated",
         of(STEP, {"        (mse_loss": "        optimizer.zero_grad()\n        (mse_loss"})),
    Edit("the gradients of the step before are still there",
         of(AVERAGE, {"        optimizer.zero_grad()\n": ""})),
    Edit("the warm-up begins one step late: the first step has lr / warmup",
         {RATE: "min(1.0, max(0, number // accumulation - 1) / warmup)"}),
    Edit("the warm-up is left out", {RATE: "1.0"}),
    Edit("samples that only fill up the last batches count twice", of(EVALUATE, {CUT: ""})),
    Edit("only the last rank's batch is taken to be filled up: more of them may be",
         {CUT: "[: len(everyone) - -num_samples % len(own)]"}),
    Edit("every held-out batch is cut, not the last ones only",
         of(EVALUATE, {"if number == len(held_out):": "if number:"})),
    Edit("each rank evaluates its own held-out batches alone",
         of(EVALUATE, {"torch.cat(parts)": "own"})),
)  # fmt: skip
SIZE, WIDTH, OUTPUTS, BATCHES, HELD_OUT = 3, 2, 3, 6, 2


def inputs(case: Case) -> Given:
    g, p, n = case.generator(), case.params, case.world_size
    weight, bias = torch.randn(OUTPUTS, WIDTH, generator=g), torch.randn(OUTPUTS, generator=g)
    x, y = (torch.randn(HELD_OUT * n * SIZE, width, generator=g) for width in (WIDTH, OUTPUTS))
    num_samples = len(x) - min(p["missing"], n * SIZE - 1)  # one sample is left, at least
    order = torch.arange(len(x)) % num_samples  # the first samples again, at the end
    turns = order.view(HELD_OUT, n, SIZE)
    given = []
    for rank in range(n):
        pair = lambda: [torch.randn(SIZE, width, generator=g) for width in (WIDTH, OUTPUTS)]  # noqa: E731
        batches = [[x + rank, y] for x, y in (pair() for _ in range(BATCHES))]
        held_out = [[x[turn], y[turn]] for turn in turns[:, rank]]
        own = {"weight": weight, "bias": bias, "batches": batches, "held_out": held_out, "num_samples": num_samples}
        options = {"lr": 0.125, "warmup": 3, "accumulation": p.get("accumulation", 1)}
        given.append({**own, **options, "max_norm": p.get("max_norm", 0.0)})
    return given


def on_rank(answer: Any, weight: Any, bias: Any, batches: Any, held_out: Any, num_samples: int, **options: Any) -> Any:
    model = torch.nn.Linear(*reversed(weight.shape))
    model.load_state_dict({"weight": weight.clone(), "bias": bias.clone()})
    rates, error = answer(model, [tuple(b) for b in batches], [tuple(b) for b in held_out], num_samples, **options)
    return {"rates": rates, "weight": model.weight.detach(), "bias": model.bias.detach(), "held-out error": error}


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    """One process with the batches of all ranks, in float64."""
    first, rates = given[0], list[float]()
    leaves = [first["weight"].double().requires_grad_(), first["bias"].double().requires_grad_()]
    forward = lambda x: x.double() @ leaves[0].T + leaves[1]  # noqa: E731
    each = first["accumulation"]
    for step in range(BATCHES // each):
        losses = [
            mse_loss(forward(x), y.double())
            for one in given
            for x, y in one["batches"][step * each : (step + 1) * each]
        ]
        gradients = torch.autograd.grad(torch.stack(losses).mean(), leaves)
        norm = torch.cat([g.flatten() for g in gradients]).norm().item()
        factor = first["max_norm"] / (norm + 1e-6) if 0 < first["max_norm"] < norm else 1.0
        rates.append(first["lr"] * min(1.0, (step + 1) / first["warmup"]))
        with torch.no_grad():
            for leaf, gradient in zip(leaves, gradients, strict=True):
                leaf -= rates[-1] * factor * gradient
    pairs = [one["held_out"][turn] for turn in range(HELD_OUT) for one in given]
    x, y = (torch.cat(tensors)[: first["num_samples"]] for tensors in zip(*pairs, strict=True))
    weight, bias = (leaf.detach().float() for leaf in leaves)
    error = mse_loss(forward(x), y.double()).item()
    return [{"rates": rates, "weight": weight, "bias": bias, "held-out error": error}] * case.world_size


def why(case: Case, given: Given, record: Record) -> str:
    return f"{MAY_HELP}{case.says}" if case.says else ""


CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    why=why,
    rules=[
        rules.only("all_reduce", "all_gather", why="gradients and errors go through all_reduce and all_gather"),
        no_silent_rank(least_calls=lambda case, given: 2),
    ],
    reads=[no_stores],
    rtol=1e-4,
    atol=1e-5,
)
