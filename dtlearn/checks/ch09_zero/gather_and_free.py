"""ch09.gather_and_free: one unit, several, steps, groups of ranks; then what is held, and where backward's weights are
from.

In the last case the shards are doubled between forward and backward. Who gathers again has other gradients then.
"""

from __future__ import annotations

from typing import Any

import torch

from dtlearn.grading import Case, Check, Edit, Given, Stress, rules
from dtlearn.runtime.record.record import Record

from ..sent import no_stores
from ..traffic import most_sent
from . import MAY_HELP, groups_of

MEMORY = {"units": 8, "width": 32}
# Per case: `units`; `width`, so a unit has width * (width + 1) weights; `steps`; `needs`, whether x needs a
# gradient; `look`, what is compared.
CASES: dict[str, dict[str, Any]] = {
    "one unit": {},
    "x without a gradient": {"says": "x may need no gradient: the weights need theirs all the same", "needs": False},
    "three units": {
        "says": "each unit's x is the output of the one before it: keep apart what belongs to one unit",
        "units": 3,
    },
    "two steps": {
        "says": "after a step the shards have other values: gather them in each call, keep no gradient from before",
        "steps": 2,
    },
    "under no_grad": {
        "says": "under torch.no_grad() there is no backward pass: the output is all that is expected",
        "units": 2,
        "look": "no_grad",
    },
    "groups of ranks": {
        "says": "with `group`, N, the shards and the mean are those of its ranks",
        "pairs": True,
        "units": 2,
        "sizes": (4,),
    },
    "between forward and backward": {
        "says": "after forward something of the size of a unit's weights is still held, by autograd or by your code",
        **MEMORY,
        "look": "after forward",
    },
    "after backward": {
        "says": "after backward something of the size of a unit's weights is still held: the full weights, or their "
        "full gradient",
        **MEMORY,
        "look": "after backward",
    },
    "at its peak": {
        "says": "in backward more is held at once than 5 times a unit's weights: free each unit's weights and full "
        "gradient before the next unit's backward pass",
        **MEMORY,
        "look": "at once",
    },
    "shards that change before backward": {
        "says": "backward computes with the weights of forward, which were kept somewhere: gather them again, and use "
        "what comes",
        "units": 2,
        "width": 4,
        "steps": 2,
        "look": "changed",
    },
}
REDUCE = "dist.reduce_scatter(mean, list(full.grad.chunk(num_ranks)), group=group)"
OWN = "mean.copy_(full.grad.chunk(num_ranks)[dist.get_rank(group)])"
SET, CALL, HOOK = (
    "shard.grad = mean / num_ranks",
    "gather()\n    y = compute(full, x)",
    "y.register_hook(lambda _: gather())",
)
MEAN = "mean = torch.empty_like(shard, requires_grad=False)"
EDITS = (
    Edit("the gradients are added up over the ranks, and not divided by N", {SET: "shard.grad = mean"}),
    Edit("the gradients are divided by N twice", {SET: "shard.grad = mean / num_ranks**2"}),
    Edit("the sum over the group is divided by the number of all ranks, not of those in group",
         {SET: "shard.grad = mean / dist.get_world_size()"}),
    Edit("shard.grad is twice the mean: it is added twice, as where your code sets it and also returns it to autograd, "
         "which adds it", {SET: "shard.grad = 2 * mean / num_ranks"}),
    Edit("shard.grad is of each rank's own gradient: the gradients of the other ranks are missing in it",
         {REDUCE: OWN, SET: "shard.grad = mean"}),
    Edit("shard.grad is of each rank's own gradient, divided by N: the gradients of the other ranks are missing in it",
         {REDUCE: OWN}),
    Edit("the gradients are rounded to 16 bits on their way", {
        MEAN: "mean = torch.empty(len(shard), dtype=torch.float16)",
        "list(full.grad.chunk": "list(full.grad.half().chunk", SET: "shard.grad = mean.float() / num_ranks"}),
    Edit("no shard has a gradient: backward() from the output is to set shard.grad", {SET: "pass"}),
    Edit("the output takes no part in autograd: it requires no gradient", {"return y\n": "return y.detach()\n"}),
    Edit("x, the output of the unit before, gets no gradient from your function",
         {"compute(full, x)": "compute(full, x.detach())"}),
    Edit("the gradients of all units go to the shard of the unit that was called last: keep apart what belongs to a "
         "unit",
         {CALL: f"gather_and_free.shard = shard\n    {CALL}", SET: "gather_and_free.shard.grad = mean / num_ranks"}),
    Edit("from the second step on the weights are those of the first step: gather the shard as it is in each call",
         {"shard.detach(), group": 'shard.__dict__.setdefault("first", shard.detach().clone()), group'}),
    Edit("`group` is not used: with it N, the shards and the mean are those of its ranks",
         {"num_ranks = dist": "group = None; num_ranks = dist"}),
    Edit("the weights are not freed after forward: autograd has saved views of them, and so keeps their memory",
         {"memory.resize_(0)  # what": "pass  # what"}),
    Edit("the full weights are not freed in backward: those of all units are there at its end",
         {"memory.resize_(0)\n        mean": "mean"}),
    Edit("the weights of all units are gathered when backward begins: gather each unit's just before its own backward "
         "pass", {HOOK: "waiting = gather_and_free.__dict__.setdefault('waiting', []); waiting.append(gather); "
                  "y.register_hook(lambda _: (any(waiting.pop()() for _ in list(waiting)), None)[1])"}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    p, given = case.params, [dict[str, Any]() for _ in range(case.world_size)]
    units, width, steps = p.get("units", 1), p.get("width", 2), p.get("steps", 1)
    for number, ranks in enumerate(groups_of(case)):
        g, length = case.generator(number), -(-width * (width + 1) // len(ranks))
        weights = [torch.randn(len(ranks), length, generator=g) / width**0.5 for _ in range(units)]
        for place, rank in enumerate(ranks):
            x = torch.randn(steps, 2, width, generator=g) + rank
            own = {"shards": [unit[place].clone() for unit in weights], "needs": p.get("needs", True)}
            own["x"] = x[:1].repeat(steps, 1, 1) if p.get("look") == "changed" else x
            given[rank] = {**own, "group": groups_of(case) if "pairs" in p else [], "look": p.get("look", "values")}
    return given


def on_rank(answer: Any, shards: Any, x: Any, group: Any, look: Any, needs: Any) -> Any:
    import contextlib
    import gc
    import time

    from dtlearn.grading.on_rank.tools import own_group
    from dtlearn.memory.ledger.storage_ledger import StorageLedger

    own, width, notes, measured, of_last = own_group(group), x.shape[-1], {}, {}, []
    units = [torch.nn.Parameter(shard.clone()) for shard in shards]
    whole, part = shards[0].nbytes * dist.get_world_size(own), sum(s.nbytes for s in shards)  # type: ignore[name-defined] # noqa: F821
    little = 3 * len(shards) * x[0].nbytes  # activations

    def compute(weights: Any, x: Any) -> Any:
        return torch.tanh(x @ weights[: width * width].view(width, width) + weights[width * width :][:width])

    def measure(when: str, most: int) -> None:
        for tried in range(6 if ledger else 0):  # the backend lets go of a tensor a little after its call
            if ledger.now > most:  # type: ignore[union-attr]
                time.sleep(0.01) if tried else gc.collect()
        measured[when] = ledger is not None and ledger.now > most

    with StorageLedger() if look[:2] in ("af", "at") else contextlib.nullcontext() as ledger:
        for number, rows in enumerate(x):
            with torch.set_grad_enabled(look != "no_grad"):
                leaf = y = rows.clone().requires_grad_(needs)
                for unit in units:
                    unit.grad = None
                    if ledger and unit is units[-1] and y.requires_grad:
                        y.register_hook(lambda _: of_last.append(ledger.peak))
                    y = answer(compute, unit, y, group=own)
            note = {"y": y.detach().clone(), "y requires a gradient": y.requires_grad}
            measure("after forward", whole // 2 + little)
            for unit in units if look == "changed" and number else ():
                unit.data.mul_(2)
            if y.requires_grad:
                y.square().sum().backward()
            del y
            measure("after backward", whole // 2 + part + little)
            note["x.grad"] = leaf.grad
            gradients = {f"shard.grad of unit {k}": unit.grad for k, unit in enumerate(units)}
            notes[f"step {number + 1}"] = {**note, **gradients}
            for unit in units if look == "values" else ():
                unit.data.mul_(-0.5)
    if ledger:
        of_last.append(0)
        most, peaks = 5 * whole + little, {"in backward of the last unit": of_last[0], "in all": ledger.peak - part}
        measured["at once"] = {f"too much {when}": peak > most for when, peak in peaks.items()}  # type: ignore[assignment]
        return {look: measured[look]}
    if look == "changed":
        first, second = (note["shard.grad of unit 0"] for note in notes.values())
        return {"the gradients show the change": first is not None and not torch.allclose(first, second)}
    return notes


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    """One process with all the weights of a group; the gradients of its ranks' inputs are averaged."""
    look = given[0]["look"]
    at_once = {"too much in backward of the last unit": False, "too much in all": False}
    facts: dict[str, Any] = {"changed": {"the gradients show the change": True}, "at once": {"at once": at_once}}
    if look not in ("values", "no_grad"):
        return [facts.get(look, {look: False})] * case.world_size
    results: list[dict[str, Any]] = [{} for _ in given]
    width = given[0]["x"].shape[-1]
    for ranks in groups_of(case):
        units = [torch.cat(parts).double() for parts in zip(*(given[rank]["shards"] for rank in ranks), strict=True)]
        for number in range(len(given[0]["x"])):
            leaves = [(unit * (-0.5) ** number).requires_grad_() for unit in units]
            xs = [given[rank]["x"][number].double().requires_grad_() for rank in ranks]
            outputs = list(xs)
            for w in leaves:
                w, b = w[: width * width].view(width, width), w[width * width :][:width]
                outputs = [torch.tanh(y @ w + b) for y in outputs]
            sum(y.square().sum() for y in outputs).backward()
            trains = look == "values"
            for place, (rank, x, y) in enumerate(zip(ranks, xs, outputs, strict=True)):
                shards = [(w.grad / len(ranks)).chunk(len(ranks))[place].float() for w in leaves]  # type: ignore[operator,union-attr]
                note = {f"shard.grad of unit {k}": s if trains else None for k, s in enumerate(shards)}
                note |= {"y": y.detach().float(), "y requires a gradient": trains}
                note["x.grad"] = x.grad.float() if trains and given[rank]["needs"] else None
                results[rank][f"step {number + 1}"] = note
    return results


def why(case: Case, given: Given, record: Record) -> str:
    """The hint for a run that raised: what is special about its case."""
    special = f"; here {case.says}" if case.says and given[0]["look"] in ("values", "no_grad") else ""
    return f"{MAY_HELP}units follow one another, then comes backward(){special}"


def most(case: Case, given: Given) -> float:
    times = 1 if given[0]["look"] == "no_grad" else 3
    one = sum(shard.nbytes for shard in given[0]["shards"]) * (len(groups_of(case)[0]) - 1)
    return float(times * one * len(given[0]["x"]))


CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    why=why,
    rules=[
        rules.only("all_gather", "all_gather_into_tensor", "reduce_scatter", "reduce_scatter_tensor"),
        most_sent(most, "two all-gathers and a reduce-scatter of each unit in a step, and one all-gather without"),
    ],
    reads=[no_stores],
    stress=Stress(poison=True),
    rtol=1e-4,
    atol=2e-5,
)
