"""ch09.bug_hunt: a training loop with ZeRO stage 1, each of its three bugs in a case that shows this one only.

In the last case each rank adds noise of its own to the parameters before each step but the first. With ZeRO all ranks
have the owner's values after the step; whoever updates the whole model on each rank has another model on each.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import mse_loss

from dtlearn.grading import Case, Check, Edit, Given

from ..sent import no_silent_rank, no_stores

# Per case: `steps`; `limit`, max_norm as a multiple of the first gradient's norm; `look`, what is compared.
CASES: dict[str, dict[str, Any]] = {
    "one step": {},
    "the momentum": {
        "says": "the momentum of all parameters is returned, on every rank",
        "steps": 2,
        "look": "momentum",
    },
    "long gradients": {
        "says": "a mean gradient that is longer than max_norm is scaled down to max_norm, by its whole length",
        "limit": 0.3,
        "steps": 2,
    },
    "the optimizer's state": {
        "says": "while it trains, no rank's optimizer has more of the state than a shard",
        "look": "elements of state",
    },
    "noise in the parameters": {
        "says": "before a step the parameters were changed, on each rank by other noise, and after it the ranks have "
        "different ones: a rank updates the whole model itself, and does not take another rank's shard from that rank",
        "steps": 3,
        "look": "alike",
    },
}
PART = "rank * length : (rank + 1) * length"
MEAN = f"dist.all_reduce(gradient)\n        gradient /= n\n        shard.grad = gradient[{PART}]\n        norm"
SUMMED, SCALE = "dist.all_reduce(norm)\n", "shard.grad *= (max_norm / (norm.sqrt() + 1e-6)).clamp(max=1.0)"
CLIP = f"norm = shard.grad.square().sum()\n        {SUMMED}        {SCALE}"
EARLY = "gradient *= (max_norm / (gradient.norm() + 1e-6)).clamp(max=1.0)"
GATHER, LOOP = "dist.all_gather(list(flat.split(length)), shard.clone())", "for x, y in batches:\n        "
STEP, STATE = f"optimizer.step()\n        {GATHER}", "dist.all_gather(list(state.split(length)), own)"
OWN_NORM = {CLIP: "clip_grad_norm_([shard], max_norm)"}
LATE = {STEP: "optimizer.step()", f"{LOOP}model.zero_grad()": f"{LOOP}{GATHER}\n        model.zero_grad()"}
RANK_0 = {STATE: f"state[{PART}] = own\n    dist.broadcast(state, src=0)"}
EDITS = (
    Edit("everything ends as with the program as it was found. In a training whose gradients are shorter than max_norm "
         "the ranks have different parameters at the end, and should have the same", {**OWN_NORM, **LATE, **RANK_0}),
    Edit("each rank clips its shard by the norm of that shard alone: the squares of all ranks make the norm", OWN_NORM),
    Edit("each rank clips the gradient of its own batch: the mean over the ranks is clipped",
         {f"{MEAN} = shard.grad.square().sum()\n        {SUMMED}        {SCALE}":
          f"{EARLY}\n        {MEAN.removesuffix('norm').rstrip()}"}),
    Edit("the norms of the shards are added up: the squares add up, and then comes the root",
         {f"{SUMMED}        {SCALE}": f"norm.sqrt_()\n        {SUMMED}        {SCALE.replace('.sqrt()', '')}"}),
    Edit("long gradients are not clipped", {CLIP: "pass"}),
    Edit("after the last step each rank has the new values of its own shard only: they are gathered after each step, "
         "not before the next", LATE),
    Edit("updated shards reach no other rank: they are gathered in each step", {STEP: "optimizer.step()"}),
    Edit("the state that is returned has the shard of rank 0 only, and zeros for the others", RANK_0),
    Edit("the state that each rank returns has its own shard only, and zeros for the others",
         {STATE: f"state[{PART}] = own"}),
    Edit("the gradients are added up over the ranks, and not divided by their number",
         {MEAN: MEAN.replace("gradient /= n", "pass")}),
    Edit("each rank updates its shard by the gradient of its own batch",
         {MEAN: MEAN.replace("dist.all_reduce(gradient)\n        gradient /= n", "pass")}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    g, n, steps = case.generator(), case.world_size, case.params.get("steps", 1)
    start, slope = 0.3 * torch.randn(4, generator=g), torch.tensor([[1.0], [-2.0], [1.5]])
    given: Given = []
    for rank in range(n):
        x = torch.randn(steps, 4, 3, generator=g) + 0.3
        noise = 0.1 * torch.randn(steps, 4, generator=g)
        noise[0] = 0
        own = {"start": start, "batches": [[one, one @ slope + 1.0 + rank] for one in x], "lr": 0.1}
        given.append({**own, "look": case.params.get("look", "parameters"), "noise": noise})
    norm = float(torch.stack([gradient_of(start.double(), *own["batches"][0]) for own in given]).mean(0).norm())
    return [{**own, "max_norm": case.params.get("limit", 1e6) * norm} for own in given]


def gradient_of(model: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    leaf = model.detach().requires_grad_()
    mse_loss(x.double() @ leaf[:3, None] + leaf[3], y.double()).backward()
    assert leaf.grad is not None
    return leaf.grad


def on_rank(
    answer: Any, start: Any, batches: Any, lr: Any, max_norm: Any, look: Any = "parameters", noise: Any = None
) -> Any:
    from torch.optim.optimizer import register_optimizer_step_post_hook

    held, left = [0], list(noise) if look == "alike" else []

    def note(optimizer: Any, *_: Any) -> None:
        tensors = [t for state in optimizer.state.values() for t in state.values() if isinstance(t, torch.Tensor)]
        held[0] = max(held[0], sum(t.numel() for t in tensors))

    def add_noise(module: Any, _: Any) -> None:
        own = left.pop(0) if left else torch.zeros(4)
        for p, part in zip(module.parameters(), (own[None, :3], own[3:]), strict=True):
            p.data += part

    hook, model = register_optimizer_step_post_hook(note), torch.nn.Linear(3, 1)
    model.load_state_dict({"weight": start[None, :3].clone(), "bias": start[3:].clone()})
    model.register_forward_pre_hook(add_noise)
    momentum = answer(model, [tuple(pair) for pair in batches], lr=lr, max_norm=max_norm)
    hook.remove()
    parameters = torch.cat([p.detach().flatten() for p in model.parameters()])
    every = [torch.empty_like(parameters) for _ in range(dist.get_world_size())]  # type: ignore[name-defined] # noqa: F821
    dist.all_gather(every, parameters)  # type: ignore[name-defined] # noqa: F821
    alike = all(torch.allclose(one, parameters, rtol=1e-4, atol=1e-4) for one in every)
    shard = -(-4 // dist.get_world_size())  # type: ignore[name-defined] # noqa: F821
    facts = {"parameters": parameters, "momentum": momentum, "alike": alike, "elements of state": held[0] > shard}
    names = {"alike": "all ranks have one model", "elements of state": f"more than {shard} elements of state"}
    return {names.get(look, look): facts[look]}


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    """One process with the batches of all ranks, in float64."""
    model, momentum, own = given[0]["start"].double(), torch.zeros(4).double(), given[0]
    for step in range(len(own["batches"])):
        gradient = torch.stack([gradient_of(model, *one["batches"][step]) for one in given]).mean(0)
        gradient *= min(1.0, own["max_norm"] / (float(gradient.norm()) + 1e-6))
        momentum = 0.9 * momentum + gradient
        model = model - own["lr"] * momentum
    facts: dict[str, Any] = {"parameters": model.float(), "momentum": momentum.float()}
    other = {"alike": {"all ranks have one model": True}}
    other["elements of state"] = {f"more than {-(-4 // case.world_size)} elements of state": False}
    return [other.get(own["look"], {own["look"]: facts.get(own["look"])})] * case.world_size


CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    rules=[no_silent_rank(least_calls=lambda case, given: 2 * len(given[0]["batches"]))],
    reads=[no_stores],
    rtol=2e-4,
    atol=2e-5,
)
