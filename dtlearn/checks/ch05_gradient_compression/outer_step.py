"""ch05.outer_step: plain averaging first; then a rate, momentum, several rounds, several tensors, two groups."""

from __future__ import annotations

from typing import Any

import torch

from dtlearn.grading import Case, Check, Edit, Finding, Given, Stress
from dtlearn.runtime.record.record import Record

from ..own_work import no_objects
from ..sent import no_silent_rank, no_stores
from . import MAY_HELP, groups_of

SHAPES = ((2,), (2, 3), ())
# Per case: `lr`, `momentum`; `buffers`, the size of what is in them; `rounds`; `cleared`, whether the buffers are
# zero before each later one; `shapes`; `still`, which ranks do not change the last tensor.
CASES: dict[str, dict[str, Any]] = {
    "a rate of 1 and no momentum": {"lr": 1.0, "momentum": 0.0},
    "a rate of 0.7": {"says": "the step is lr times the direction, and it begins at old", "momentum": 0.0},
    "momentum, in the first round": {
        "says": "the direction is g + momentum * buffer, with the buffer that has g in it already",
        "buffers": 0.0,
    },
    "momentum, in a later round": {
        "says": "the buffer brings the momentum of all rounds before: momentum * buffer + g"
    },
    "three rounds": {
        "says": "the next round begins with what this one leaves: `parameters` and `old` with the new values, and "
        "`buffers` with the momentum, each in the memory that it had",
        "rounds": 3,
    },
    "buffers that are set to zero in between": {
        "says": "the momentum of the rounds before is what is in `buffers`: nothing else remembers it",
        "rounds": 2,
        "cleared": True,
    },
    "three tensors of different shapes": {"says": "each tensor is stepped, with its own buffer", "shapes": SHAPES},
    "a tensor that no rank has changed": {
        "says": "a tensor whose pseudo-gradient is zero is stepped like all others: its momentum moves it",
        "shapes": SHAPES[:2],
        "still": "all",
    },
    "a tensor that one rank has not changed": {
        "says": "a rank that has not changed a tensor takes part in its mean all the same, with zero",
        "shapes": SHAPES[:2],
        "still": "one",
    },
    "two groups": {"says": "ranks outside the group train another model", "pairs": True, "sizes": (2, 4)},
}
CHANGE, SUM, MEAN = "(o - p).flatten()", "dist.all_reduce(flat, group=group)", "flat /= dist.get_world_size(group)"
BUFFER, DIRECTION = "buffer.mul_(momentum).add_(g)", "nesterov = g + momentum * buffer"
STEP, COPY = "o.sub_(lr * nesterov)", "p.copy_(o)"
VIEW, EACH = "g = piece.view_as(p)", "zip(parameters, old, buffers, pieces, strict=True):"
EDITS = (
    Edit("the pseudo-gradient has the wrong sign: it is old - parameters, so that a step against it goes where the "
         "inner steps went", {CHANGE: "(p - o).flatten()"}),
    Edit("the pseudo-gradients are added up over the ranks, and not divided by their number", {MEAN: "pass"}),
    Edit("each rank steps by its own pseudo-gradient: the mean over the ranks is taken", {SUM: "pass", MEAN: "pass"}),
    Edit("each rank steps by its own pseudo-gradient, divided by the number of ranks: first they are added up",
         {SUM: "pass"}),
    Edit("all ranks step by the pseudo-gradient of the group's first rank: the mean over the ranks is taken",
         {SUM: "dist.broadcast(flat, dist.get_process_group_ranks(group or dist.group.WORLD)[0], group=group)",
          MEAN: "pass"}),
    Edit("`parameters` stay as the inner steps left them: they get the new values too", {COPY: "pass"}),
    Edit("the tensors in `old` stay as they were: they get the new values too, in place, and the next round begins "
         "there", {STEP: "", COPY: "p.copy_(o - lr * nesterov)"}),
    Edit("the step begins at this rank's own parameters: it begins at `old`, where all ranks were",
         {STEP: "p.sub_(lr * nesterov)", COPY: "o.copy_(p)"}),
    *(Edit("the parameters of the ranks are averaged, and that is all: the rate and the momentum do nothing",
           {STEP: "o.sub_(g)", BUFFER: buffer, DIRECTION: ""}) for buffer in ("", BUFFER)),
    Edit("the mean of the ranks' parameters is where the step begins: it begins at `old`, and the mean is where a step "
         "with a rate of 1 and without momentum ends", {STEP: "o.sub_(g + lr * nesterov)"}),
    Edit("this is plain momentum, a step by momentum * buffer + g with the buffer of the rounds before: Nesterov's "
         "direction is g + momentum * buffer, with the buffer that has g in it already",
         {DIRECTION: "nesterov = buffer"}),
    Edit("the buffer takes up (1 - momentum) * g, as a moving average does: here it takes up g",
         {BUFFER: "buffer.mul_(momentum).add_((1 - momentum) * g)"}),
    Edit("the buffer takes up lr * g: it takes up g, and the rate comes with the step. (With one rate for the whole "
         "training the parameters would be the same)",
         {BUFFER: "buffer.mul_(momentum).add_(lr * g)", STEP: "o.sub_(lr * g + momentum * buffer)"}),
    Edit("`lr` and `momentum` are exchanged",
         {BUFFER: "buffer.mul_(lr).add_(g)", DIRECTION: "nesterov = g + lr * buffer",
          STEP: "o.sub_(momentum * nesterov)"}),
    Edit("the buffer is multiplied by lr: it is multiplied by momentum, and the rate comes with the step",
         {BUFFER: "buffer.mul_(lr).add_(g)"}),
    Edit("the buffer is multiplied by 1 - momentum: it is multiplied by momentum",
         {BUFFER: "buffer.mul_(1 - momentum).add_(g)"}),
    Edit("the buffer counts lr times in the direction: it counts momentum times",
         {DIRECTION: "nesterov = g + (lr if momentum else 0) * buffer"}),
    Edit("the buffer counts 1 - momentum times in the direction: it counts momentum times",
         {DIRECTION: "nesterov = g + (1 - momentum if momentum else 0) * buffer"}),
    Edit("the rate counts for g only: the step is lr times the whole direction",
         {STEP: "o.sub_(lr * g + momentum * buffer)"}),
    Edit("the momentum counts twice in the step: the direction is g + momentum * buffer, and the step lr times that",
         {STEP: "o.sub_(lr * (g + momentum * momentum * buffer))"}),
    *(Edit(f"the tensors in `{name}` get memory of their own, so that whoever holds the memory they had sees no new "
           "value: `copy_` and the like change it in place", change) for name, change in (
        ("parameters", {COPY: "p.data = o.clone()"}), ("old", {STEP: "o.data = o - lr * nesterov"}),
        ("buffers", {BUFFER: "buffer.data = momentum * buffer + g"}))),
    Edit("the tensors in `buffers` stay as they were: they are changed in place, and the next round goes on with them",
         {BUFFER: "", DIRECTION: "nesterov = g + momentum * (momentum * buffer + g)"}),
    Edit("neither the momentum of the rounds before counts, nor do the tensors in `buffers` change",
         {BUFFER: "", DIRECTION: "nesterov = g + momentum * g"}),
    Edit("the buffers begin at zero in each round: they bring the momentum of the rounds before",
         {BUFFER: "buffer.zero_().add_(g)"}),
    Edit("each rank's buffer takes up its own pseudo-gradient: it takes up the mean, so that all ranks step alike",
         {SUM: f"own = iter(flat.clone().split([p.numel() for p in parameters])); {SUM}",
          BUFFER: "buffer.mul_(momentum).add_(next(own).view_as(p))"}),
    Edit("`old` and `parameters` have the same memory now: the next inner steps change both, and the pseudo-gradient "
         "is zero from then on", {COPY: "p.data = o"}),
    Edit("only the first tensor is stepped", {EACH: "list(zip(parameters, old, buffers, pieces, strict=True))[:1]:"}),
    Edit("a tensor whose mean pseudo-gradient is zero is left out: its momentum moves it all the same",
         {VIEW: f"{VIEW}\n        if not g.any():\n            continue"}),
    Edit("the mean of a tensor is over the ranks that have changed it: a rank that has not counts with zero",
         {SUM: "moved = torch.cat([(o != p).any().float().expand(p.numel()) for p, o in zip(parameters, old)])\n    "
               f"dist.all_reduce(moved, group=group)\n    {SUM}", MEAN: "flat /= moved.clamp(min=1)"}),
    Edit("the pseudo-gradients are added up over all ranks of the job: those of the group train this model",
         {SUM: "dist.all_reduce(flat)"}),
    Edit("the sum over the group is divided by the number of all ranks: divide by dist.get_world_size(group)",
         {MEAN: "flat /= dist.get_world_size()"}),
    Edit("the mean is over all ranks of the job: those of the group train this model",
         {SUM: "dist.all_reduce(flat)", MEAN: "flat /= dist.get_world_size()"}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    p, given = case.params, [dict[str, Any]() for _ in range(case.world_size)]
    shapes, rounds = p.get("shapes", SHAPES[:1]), p.get("rounds", 1)
    for number, ranks in enumerate(groups_of(case)):
        g = case.generator(number)
        old, buffers = ([torch.randn(shape, generator=g) for shape in shapes] for _ in range(2))
        buffers = [0.5 * p.get("buffers", 1.0) * b for b in buffers]
        for place, rank in enumerate(ranks):
            steps = [[0.3 * torch.randn(s, generator=g) + 0.1 for s in shapes] for _ in range(rounds)]
            if p.get("still") == "all" or (p.get("still") == "one" and place == len(ranks) - 1):
                steps[0][-1].zero_()
            given[rank] = {
                "parameters": [o + step for o, step in zip(old, steps[0], strict=True)],
                **{"old": old, "buffers": buffers, "lr": p.get("lr", 0.7), "momentum": p.get("momentum", 0.8)},
                **{"later": steps[1:], "cleared": "cleared" in p, "groups": groups_of(case) if "pairs" in p else []},
            }
    return given


def on_rank(
    answer: Any, parameters: Any, old: Any, buffers: Any, lr: Any, momentum: Any,
    later: Any = (), cleared: Any = False, groups: Any = (),
) -> Any:  # fmt: skip
    from dtlearn.grading.on_rank.tools import own_group

    group = own_group(groups)
    facts: dict[str, Any] = {}
    held = {"parameters": [torch.nn.Parameter(p.clone()) for p in parameters]}
    held |= {"old": [o.clone() for o in old], "buffers": [b.clone() for b in buffers]}
    memory = {name: [t.data_ptr() for t in tensors] for name, tensors in held.items()}
    kept = dict.fromkeys(held, True)
    for number, steps in enumerate([[], *later], 1):
        for p, step in zip(held["parameters"], steps, strict=bool(steps)):
            p.data += step  # the inner steps
        for buffer in held["buffers"] if steps and cleared else []:
            buffer.zero_()
        answer(*(list(tensors) for tensors in held.values()), lr, momentum, group=group)
        for name, tensors in held.items():
            if momentum or name != "buffers":
                facts[f"{name} after round {number}"] = [t.detach().clone() for t in tensors]
                kept[name] &= [t.data_ptr() for t in tensors] == memory[name]
    if later:
        facts |= {f"{name} in the memory that they had": kept[name] for name in held}
    return facts


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    """torch's SGD, one for each model, in float64."""
    results: list[dict[str, Any]] = [{} for _ in given]
    for ranks in groups_of(case):
        first = given[ranks[0]]
        old = [torch.nn.Parameter(o.double()) for o in first["old"]]
        sgd = torch.optim.SGD(old, lr=first["lr"], momentum=first["momentum"], nesterov=first["momentum"] > 0)
        for o, buffer in zip(old, first["buffers"], strict=True):
            sgd.state[o]["momentum_buffer"] = buffer.double()
        for number in range(1, 2 + len(first["later"])):
            for i, o in enumerate(old):
                each = [given[r]["later"][number - 2][i] if number > 1 else given[r]["parameters"][i] for r in ranks]
                taken_off = [-one.double() if number > 1 else o.detach() - one.double() for one in each]
                o.grad = torch.stack(taken_off).mean(0)
                if number > 1 and first["cleared"]:
                    sgd.state[o]["momentum_buffer"].zero_()
            sgd.step()
            new = [o.detach().float() for o in old]
            facts = {f"{name} after round {number}": new for name in ("parameters", "old")}
            if first["momentum"]:
                facts[f"buffers after round {number}"] = [sgd.state[o]["momentum_buffer"].float() for o in old]
            for rank in ranks:
                results[rank] |= facts
                if first["later"]:
                    results[rank] |= {f"{name.split()[0]} in the memory that they had": True for name in facts}
    return results


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    """Copies that differ in their last digits drift apart."""
    for ranks in groups_of(case):
        for name, tensors in got[ranks[0]].items():
            for rank in ranks[1:] if "round" in name else []:
                if any(not torch.equal(a, b) for a, b in zip(tensors, got[rank][name], strict=True)):
                    text = f"{name} differ in their last digits on ranks {ranks[0]} and {rank}: all ranks of the group "
                    text += "end with the same, or they drift apart"
                    return Finding("DTL-MISTAKE", text, rank)
    return None


def rounds(case: Case) -> int:
    return int(case.params.get("rounds", 1))


def why(case: Case, given: Given, record: Record) -> str:
    return f"{MAY_HELP}{case.says}" if case.says else ""


def example(parameter: float) -> dict[str, Any]:
    one = {"parameters": parameter, "old": 2.0, "buffers": 1.0}
    return {**{name: [torch.tensor([value])] for name, value in one.items()}, "lr": 0.5, "momentum": 0.8}


CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    example=[example(1.5), example(1.0)],
    verify=verify,
    rules=[no_silent_rank(least_calls=lambda case, given: rounds(case) if len(groups_of(case)) == 1 else 0)],
    payload=lambda case, given: sum(p.nbytes for p in given[0]["parameters"]),
    why=why,
    calls=rounds,
    reads=[no_stores, no_objects],
    stress=Stress(poison=True),
    rtol=2e-5,
    atol=3e-6,
)
