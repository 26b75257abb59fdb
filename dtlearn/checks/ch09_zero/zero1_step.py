"""ch09.zero1_step: one step, several, groups of options, groups of ranks; the optimizer, and what is kept.

The gradients of all ranks have the same sign in each element: nothing cancels, so that Adam, which divides by their
size, does not make a large step of a rounding.
"""

from __future__ import annotations

from typing import Any

import torch

from dtlearn.grading import Case, Check, Edit, Given, Stress
from dtlearn.runtime.record.record import Record

from ..sent import no_silent_rank, no_stores
from ..traffic import most_sent
from . import MAY_HELP, groups_of

STEPS = (
    "from the second step on flat is wrong: a step begins with flat as the step before left it, with the gradient of "
    "this step alone, and with the optimizer's state"
)
OPTIONS = "each group has its own options; it may end within a shard, or have no element in it"
MOMENTUM = {"lr": 0.5, "momentum": 0.9}
# Per case: `optimizer_class`; `options` of each group; `stops`, where the groups end, as functions of N; `shard`,
# its length; `steps`; `look`, what is compared.
CASES: dict[str, dict[str, Any]] = {
    "one step of SGD": {},
    "several steps with momentum": {"says": STEPS, "options": [MOMENTUM], "steps": 2},
    "two groups of options": {
        "says": OPTIONS,
        "options": [MOMENTUM, {"lr": 0.25, "momentum": 0.5, "weight_decay": 0.5}],
        "stops": [lambda n: 2, lambda n: 4 * n],
        "steps": 2,
    },
    "Adam": {
        "says": "the optimizer is one of optimizer_class, whatever class that is, with the options of the groups",
        "optimizer_class": "Adam",
        "options": [{"lr": 0.1}],
        "steps": 2,
    },
    "a shard that is padding only": {
        "says": "where a shard is padding only, no group has an element in it: that rank takes part all the same",
        "shard": 2,
        "stops": [lambda n: 2 * n - 2],
    },
    "groups of ranks": {
        "says": "N, a rank's shard and the mean are those of the ranks in `group`, of which each has its own flat",
        "pairs": True,
        "options": [MOMENTUM],
        "steps": 2,
        "sizes": (4,),
    },
    "the optimizer": {
        "says": "one optimizer is built, before the first step, over this rank's shard and nothing else",
        "optimizer_class": "Adam",
        "options": [{"lr": 0.1}],
        "steps": 2,
        "look": "optimizer",
    },
    "between the steps": {
        "says": "between the steps something of full length is kept besides flat, a copy of the gradient or of flat, "
        "or the whole mean: keep nothing that is longer than a shard",
        "options": [MOMENTUM],
        "shard": 15,
        "steps": 2,
        "look": "kept",
    },
}
DIVIDE, REDUCE = "mean /= num_ranks", "dist.reduce_scatter(mean, list(gradient.chunk(num_ranks)), group=group)"
GATHER, LOOP = "dist.all_gather(list(flat.chunk(num_ranks)), shard, group=group)", "for piece, start, stop in places:"
PIECE, GRADIENT, EMPTY = (
    "Parameter(shard[start:stop])",
    "piece.grad = mean[start:stop]",
    "mean = torch.empty_like(shard)",
)
START, STOP = 'max(options["start"] - first, 0)', 'max(options["stop"] - first, 0)'
ZERO, BUILD, OWN = (
    "optimizer.zero_grad()",
    "optimizer = optimizer_class(param_groups)",
    "mean.copy_(gradient[first:][:length])",
)
EDITS = (
    Edit("the gradients are added up over the ranks, and not divided by N", {DIVIDE: "pass"}),
    Edit("the gradients are divided by N twice", {DIVIDE: "mean /= num_ranks**2"}),
    Edit("the sum over the group is divided by the number of all ranks, not of those in group",
         {DIVIDE: "mean /= dist.get_world_size()"}),
    Edit("each rank updates its shard by its own gradient: the gradients of the other ranks are missing",
         {REDUCE: OWN, DIVIDE: "pass"}),
    Edit("each rank updates its shard by its own gradient, divided by N: the gradients of the other ranks are missing",
         {REDUCE: OWN}),
    Edit("the gradients are rounded to 16 bits on their way", {
        EMPTY: "mean = torch.empty_like(shard, dtype=torch.bfloat16)",
        "gradient.chunk": "gradient.bfloat16().chunk", DIVIDE: "mean = mean.float() / num_ranks"}),
    Edit("the shards are never gathered: each rank has new values of its own, and old ones of the others",
         {GATHER: "pass"}),
    Edit("the shards are gathered before the update: of the other ranks' shards each rank has the values of the step "
         "before (gather after optimizer.step())",
         {LOOP: f"{GATHER}\n        {LOOP}", f"{ZERO}\n        {GATHER}": ZERO}),
    Edit("flat keeps its old values: the optimizer updates a copy of the shard. A slice of flat is the same memory, "
         "and its .clone() is not", {PIECE: "Parameter(shard[start:stop].clone())"}),
    Edit("a group's piece gets the gradient of the shard's first elements, not of its own: both are [start:stop] of "
         "the shard", {GRADIENT: "piece.grad = mean[: stop - start]"}),
    Edit("every rank trains the elements of the first rank's shard: start and stop count from the shard's first "
         "element, so the piece is shard[start:stop]", {PIECE: "Parameter(flat[start:stop])"}),
    Edit("every rank cuts the groups as the first rank does: from start and stop, which count in flat, take off the "
         "shard's first element", {START: 'max(options["start"], 0)', STOP: 'max(options["stop"], 0)'}),
    Edit("a group that ends, or begins, before the shard does gets negative numbers, which count from the shard's end: "
         "make them 0", {START: 'options["start"] - first', STOP: 'options["stop"] - first'}),
    Edit("in each step the optimizer begins anew, without the state of the step before: build it once",
         {BUILD: "", "optimizer.step()": "optimizer_class(param_groups).step()", ZERO: "pass"}),
    Edit("from the second step on the gradients of the steps before are added: each piece's .grad has to begin anew",
         {GRADIENT: f"{GRADIENT} + (0 if piece.grad is None else piece.grad)", ZERO: "pass"}),
    Edit("all parameters are trained with the options of the first group",
         {"in options.items()": "in groups[0].items()"}),
    Edit("the options of the groups are not used: the optimizer has its defaults", {", **others}": "}"}),
    Edit("of the options only `lr` is used", {'if name not in ("start", "stop")': 'if name == "lr"'}),
    Edit("the optimizer is SGD, whatever optimizer_class is", {BUILD: "optimizer = torch.optim.SGD(param_groups)"}),
    Edit("`group` is not used: with it N, the shards and the mean are those of its ranks",
         {"num_ranks = dist": "group = None; num_ranks = dist"}),
    Edit("the optimizer is built over all of flat, so its state is not divided: only the shard's elements have any",
         {PIECE: 'Parameter(flat[options["start"] : options["stop"]])',
          "places.append((piece, start, stop))": 'places.append((piece, options["start"], options["stop"]))',
          EMPTY: "whole = torch.zeros_like(flat); mean = whole[first:][:length]",
          GRADIENT: "piece.grad = whole[start:stop]", ZERO: "pass"}),
    Edit("the gradient that was given is still kept after the step: it has full length",
         {EMPTY: f"step.last = gradient; {EMPTY}"}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    p, given = case.params, [dict[str, Any]() for _ in range(case.world_size)]
    options = p.get("options", [{"lr": 0.5}])
    for number, ranks in enumerate(groups_of(case)):
        g, n = case.generator(number), len(ranks)
        length = n * p.get("shard", 4)
        stops = [stop(n) for stop in p.get("stops", [lambda n: n * p.get("shard", 4)])]
        starts = [0, *stops[:-1]]
        groups = [{"start": a, "stop": b, **o} for a, b, o in zip(starts, stops, options, strict=True)]
        flat = torch.randn(length, generator=g)
        sign = torch.randint(2, (length,), generator=g) * 2.0 - 1
        flat[stops[-1] :] = sign[stops[-1] :] = 0
        same = {"flat": flat, "groups": groups, "optimizer_class": p.get("optimizer_class", "SGD")}
        same |= {"group": groups_of(case) if "pairs" in p else [], "look": p.get("look", "flat")}
        for rank in ranks:
            sizes = torch.randint(1, 1 << 12, (p.get("steps", 1), length), generator=g)  # 16 bits would round them
            given[rank] = {**same, "gradient": sign * sizes / 1024}
    return given


def on_rank(answer: Any, flat: Any, groups: Any, optimizer_class: Any, group: Any, gradient: Any, look: Any) -> Any:
    import contextlib
    import gc
    import time
    import weakref

    from dtlearn.grading.on_rank.tools import own_group
    from dtlearn.memory.ledger.outside_torch import names_of_module, outside_torch
    from dtlearn.memory.ledger.storage_ledger import StorageLedger

    own, built, after = own_group(group), [], {}
    base: Any = getattr(torch.optim, optimizer_class)

    class Noted(base):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            built.append(self)

    with StorageLedger() if look == "kept" else contextlib.nullcontext() as ledger:
        vector = flat.clone()
        step = answer(vector, [dict(one) for one in groups], Noted, group=own)
        for number in range(len(gradient)):
            lent = gradient[number].clone()  # freed here, unless the answer keeps it; what it changes is changed above
            step(lent)
            gradient[number] = lent
            memory = weakref.ref(lent.untyped_storage())
            del lent
            after[f"flat after step {number + 1}"] = vector.clone()
        if ledger is not None:
            shard = len(flat) // dist.get_world_size(own)  # type: ignore[name-defined] # noqa: F821
            most = (
                (1 + len(after)) * flat.nbytes + 8 * shard + flat.nbytes // 2
            )  # the shard's state and gradient, and half
            for tried in range(8):  # an asynchronous call lets go of its tensors a little later
                if memory() is None and ledger.now <= most:
                    break
                time.sleep(0.02) if tried else gc.collect()
            sizes, _, floats = outside_torch(step, *names_of_module("exercise"))
            kept = ledger.now > most or max(sizes[0], floats) >= 0.75 * len(flat)
            return {"the gradient is kept": memory() is not None, "something of full length is kept": kept}
    parts = [t for one in built for s in one.state.values() for t in s.values() if isinstance(t, torch.Tensor)]
    elements = [p.numel() for one in built for own_group in one.param_groups for p in own_group["params"]]
    state = sum(t.numel() for t in parts if t.dim())
    notes = {"optimizers built": len(built), "its elements": sum(elements), "elements of its state": state}
    return notes if look == "optimizer" else after


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    """One process has the mean gradient, and the optimizer of all parameters."""
    results: list[dict[str, Any]] = [{} for _ in given]
    for ranks in groups_of(case):
        own, after = given[ranks[0]], dict[str, Any]()
        flat = own["flat"].double()
        pieces = [torch.nn.Parameter(flat[one["start"] : one["stop"]]) for one in own["groups"]]
        options = [{k: v for k, v in one.items() if k not in ("start", "stop")} for one in own["groups"]]
        groups = [{"params": [piece], **one} for piece, one in zip(pieces, options, strict=True)]
        optimizer = getattr(torch.optim, own["optimizer_class"])(groups)
        for number in range(len(own["gradient"])):
            mean = torch.stack([given[rank]["gradient"][number] for rank in ranks]).double().mean(0)
            for piece, one in zip(pieces, own["groups"], strict=True):
                piece.grad = mean[one["start"] : one["stop"]]
            optimizer.step()
            after[f"flat after step {number + 1}"] = flat.float()
        shard = len(flat) // len(ranks)
        notes = {"optimizers built": 1, "its elements": shard, "elements of its state": 2 * shard}
        kept = {"the gradient is kept": False, "something of full length is kept": False}
        for rank in ranks:
            results[rank] = {"flat": after, "optimizer": notes, "kept": kept}[own["look"]]
    return results


def why(case: Case, given: Given, record: Record) -> str:
    """The hint for a run that raised: what is special about its case."""
    text = f"{MAY_HELP}a group may have no element in a rank's shard, and where a shard is padding only, no group has. "
    text += "An optimizer takes an empty tensor, and no empty list"
    return f"{text}; with `group`, ranks and N are those of the group" if "pairs" in case.params else text


def steps(case: Case, given: Given | None = None) -> int:
    return int(case.params.get("steps", 1))


def most(case: Case, given: Given) -> float:
    """The bytes that a rank may send: 2n (N-1)/N in each step."""
    ranks = len(groups_of(case)[0])
    return float(2 * steps(case) * given[0]["flat"].nbytes * (ranks - 1) / ranks)


EXAMPLE = {"flat": torch.tensor([5.0, 5, 5, 0]), "groups": [{"start": 0, "stop": 3, "lr": 1.0}], "look": "flat"}
CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    example=[
        {**EXAMPLE, "optimizer_class": "SGD", "group": [], "gradient": torch.tensor([gradient])}
        for gradient in ([1.0, 2, 3, 0], [3.0, 2, 1, 0])
    ],
    why=why,
    calls=steps,
    rules=[
        no_silent_rank(least_calls=steps),
        most_sent(most, "a reduce-scatter of the gradients and an all-gather of the shards"),
    ],
    reads=[no_stores],
    stress=Stress(poison=True),
    rtol=2e-5,
)
