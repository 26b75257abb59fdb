"""ch07.accumulate_with_scaling: updates of a small model under torch's DDP, some of which overflow on one rank.

The model is float32, in which a scale changes no result, but for gradients above the largest number of float16: these
become infinite as they come in.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.functional import mse_loss
from torch.nn.utils import clip_grad_norm_

from dtlearn.grading import Case, Check, Edit, Finding, Given
from dtlearn.runtime.record.record import Record

from ..marks import steps_of
from ..sent import no_silent_rank, no_stores

ROWS = 5  # no world size, so that a division by one is not taken for one by the other
NUMBERS = {"scale": 1024.0, "growth": 2, "lr": 0.1, "momentum": 0.5, "largest": 65504.0}
SHAPES = {"0.weight": (4, 3), "0.bias": (4,), "2.weight": (2, 4), "2.bias": (2,)}
MEAN = "the step is made with the gradient of the mean squared error over all micro-batches of all ranks, unscaled"
OLD = "the gradients of the step before are still in, and may have overflowed: zero_grad() empties them"
SKIP = "where a gradient overflowed on any rank, no parameter has changed afterwards, and the scale is lowered, once"
INFINITE, FINITE = (-1, 0, 3e38), (-1, -1, 1e4)  # (rank, micro-batch, target): so is the loss of such a target
# Per case: `overflows`, one for each update, None for none; `limit`, max_norm as a multiple of the first norm;
# `old`, what is in every gradient before; `marked`, whether it is noted when each pass came.
CASES: dict[str, dict[str, Any]] = {
    "3 micro-batches": {"says": MEAN, "marked": True},
    "long gradients": {
        "says": "a gradient whose unscaled norm is above max_norm is scaled down to max_norm",
        "limit": 0.25,
    },
    "the gradients of the step before": {"says": OLD, "old": 8192.0},
    "an overflow in the step before": {"says": OLD, "old": math.inf},
    "an overflow on one rank": {"says": SKIP, "overflows": [INFINITE]},
    "an overflow on one rank, whose loss is finite": {"says": SKIP, "overflows": [FINITE]},
    "a step before an overflow, and one after it": {
        "says": "at an overflow the optimizer is not called, and the scaler counts good steps anew",
        "overflows": [None, INFINITE, None],
    },
    "1 micro-batch": {"says": "with one micro-batch the step is made with the gradient of its own mean", "k": 1},
}
ZERO, COUNT, APART = "    optimizer.zero_grad()\n", "count = len(micro_batches)", "with model.no_sync():"
PASS = "scaler.scale(mse_loss(model(x), y) / count).backward()"
EARLIER, LAST = f"micro_batches[:-1]:\n            {PASS}", f"x, y = micro_batches[-1]\n    {PASS}"
UNSCALE, CLIP = "    scaler.unscale_(optimizer)\n", "    clip_grad_norm_(model.parameters(), max_norm)\n"
STEP, UPDATE = "scaler.step(optimizer)", "scaler.update()"
EACH = "    for p in model.parameters():\n        "
AVERAGED = "torch.distributed.all_reduce(p.grad); p.grad /= torch.distributed.get_world_size()\n"
PAST = "call `model` itself, in each forward pass: past it, as with model.module, DDP cannot prepare the backward pass"


def both(old: str, new: str) -> dict[str, str]:
    """An edit in the passes of all micro-batches."""
    return {text: text.replace(old, new) for text in (EARLIER, LAST)}


# The special ones first: of two that lead to the same values the first one names them.
EDITS = (
    Edit("the last micro-batch is within no_sync() too: so no backward pass averages over the ranks",
         {LAST: f"with model.no_sync():\n        x, y = micro_batches[-1]; {PASS}"}),
    Edit("the gradients are divided by the number of ranks once more than they should be: DDP makes the mean over the "
         "ranks itself", {COUNT: f"{COUNT} * torch.distributed.get_world_size()"}),
    Edit("the losses of the micro-batches are not divided by their number: the gradient is as many times too long",
         {COUNT: "count = 1"}),
    Edit("the last micro-batch is not divided by their number, as the others are: it weighs more",
         {LAST: LAST.replace(" / count", "")}),
    Edit("the losses of the micro-batches are divided by 3, however many there are: divide by len(micro_batches)",
         {COUNT: "count = 3"}),
    Edit("only the last of the micro-batches is in the gradient: zero_grad emptied it between them?",
         {"x, y = micro_batches[-1]": "optimizer.zero_grad(); x, y = micro_batches[-1]"}),
    Edit("only the last micro-batch's loss is multiplied by the scale, and the gradients of all are divided by it",
         {EARLIER: EARLIER.replace("scaler.scale", "")}),
    Edit("no loss is multiplied by the scale, and the gradients are divided by it: scaler.scale(loss).backward()",
         {ZERO: f"{ZERO}    scaler.scale(torch.zeros(()))\n", **both("scaler.scale", "")}),
    Edit("each of the micro-batches makes a step of its own: there is one step for all of them",
         {EARLIER: EARLIER.replace(" / count", "") + f"\n        {EACH}        {AVERAGED}"
                   f"        {UNSCALE}        {CLIP}            {STEP}; {UPDATE}; optimizer.zero_grad()",
          LAST: LAST.replace(" / count", "")}),
    Edit("the loss is the sum of the squared errors: their mean is expected, over all numbers of a y",
         both("x), y", "x), y, reduction='sum'")),
    Edit("the gradients are clipped while they are still scaled, so they are too short by the scale: unscale_ comes "
         "before clip_grad_norm_", {f"{UNSCALE}{CLIP}": CLIP}),
    Edit("the gradients are divided by the scale twice: unscale_ has done so, or step would have",
         {UNSCALE: f"{UNSCALE}{EACH}p.grad /= scaler.get_scale()\n"}),
    Edit("each parameter is clipped by itself: max_norm is for the gradient of all together",
         {CLIP: f"{EACH}clip_grad_norm_(p, max_norm)\n"}),
    Edit("each value is clipped to max_norm by itself, which changes the gradient's direction: clip its norm",
         {CLIP: "    torch.nn.utils.clip_grad_value_(model.parameters(), max_norm)\n"}),
    Edit("the gradient is clipped by its largest absolute value: the norm is the square root of the sum of all squares",
         {CLIP: "    clip_grad_norm_(model.parameters(), max_norm, norm_type=torch.inf)\n"}),
    Edit("each rank clips its own gradient, and the mean of these points elsewhere: average first, then clip",
         {LAST: f"with model.no_sync():\n        x, y = micro_batches[-1]; {PASS}", CLIP: f"{CLIP}{EACH}{AVERAGED}"}),
    Edit("gradients longer than max_norm are not clipped, or too late", {CLIP: ""}),
    Edit("every step is skipped, because infinities of the step before are still in (0 * inf is NaN): zero_grad()",
         {ZERO: f"{EACH}p.grad *= 0\n"}),
    Edit("the gradients of the step before are still in: begin with zero_grad", {ZERO: ""}),
    Edit("a micro-batch that overflows is left out, and a step is made with the others: skip the step",
         {EARLIER: "micro_batches[:-1]:\n            loss = mse_loss(model(x), y) / count\n"
                   "            if loss.isfinite():\n                scaler.scale(loss).backward()"}),
    Edit("the optimizer steps with infinite gradients, and so the parameters are infinite or NaN: "
         "scaler.step(optimizer) skips such a step", {STEP: "optimizer.step()"}),
    Edit("the losses decide whether the step is skipped: gradients can overflow where no loss does. "
         "scaler.step(optimizer) looks at them",
         {EARLIER: "[]:\n            pass\n    bad = torch.zeros(())\n    for x, y in micro_batches:\n"
          "        model.require_backward_grad_sync = x is micro_batches[-1][0]\n"
          "        loss = mse_loss(model(x), y) / count\n        bad += float(not loss.isfinite())\n"
          "        scaler.scale(loss).backward()\n    model.require_backward_grad_sync = True",
          LAST: "torch.distributed.all_reduce(bad)", STEP: "bad or optimizer.step()"}),
    Edit("after an overflow the optimizer steps with zeros, and momentum still moves the parameters: do not call it",
         {CLIP: f"{CLIP}    if not all(p.grad.isfinite().all() for p in model.parameters()):\n"
                "        optimizer.zero_grad(set_to_none=False)\n", STEP: "optimizer.step()"}),
    Edit("after an overflow the scaler counts good steps on: scaler.update() begins anew, update(new_scale) does not",
         {UPDATE: "bad = not all(p.grad.isfinite().all() for p in model.parameters())\n"
                  "    scaler.update(scaler.get_scale() / 2 if bad else None)"}),
    Edit("all backward passes reduced the gradients: all but the last belong in a block `with model.no_sync():`; "
         "calling model.no_sync() without `with` does nothing", {APART: "if True:"}),
    Edit("the model was called once for several micro-batches: all of them at once need the memory that they were cut "
         "up to save", {APART: "if False:", LAST: "x, y = (torch.cat(t) for t in zip(*micro_batches))\n    "
                                            "scaler.scale(mse_loss(model(x), y)).backward()"}),
    Edit("one backward pass for several micro-batches: so all are kept at once, in the memory that they were cut up to "
         "save", {COUNT: f"{COUNT}; total = 0", EARLIER: "micro_batches[:-1]:\n            "
                  "total += mse_loss(model(x), y) / count", LAST: LAST.replace("(mse", "(total + mse")}),
    Edit("forward passes are made before the backward pass of the micro-batch before: so several are kept at once, in "
         "the memory that they were cut up to save",
         {EARLIER: "[]:\n            pass\n        losses = [mse_loss(model(x), y) / count for x, y in micro_batches]\n"
                   "        [scaler.scale(loss).backward() for loss in losses]", LAST: EACH.lstrip() + AVERAGED}),
    Edit(PAST, {EARLIER: EARLIER.replace("model(x)", "model.module(x)")}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    p, g, n = case.params, case.generator(), case.world_size
    overflows, k = p.get("overflows", [None]), p.get("k", 3)
    weights, given = {name: torch.randn(shape, generator=g) for name, shape in SHAPES.items()}, list[dict[str, Any]]()
    for rank in range(n):
        updates = []
        for overflow in overflows:
            update = [[torch.randn(ROWS, d, generator=g) + rank * (d == 3) for d in (3, 2)] for _ in range(k)]
            if overflow and rank == overflow[0] % n:
                update[overflow[1]][1][0, 0] = overflow[2]
            updates.append(update)
        given.append({"weights": weights, "updates": updates, "max_norm": 1e6, "old": p.get("old", 0.0)})
        given[-1]["marked"] = "marked" in p
    if "limit" in p:
        module = module_of(weights)
        backward(module, given, 0, lambda loss: loss)
        norm = torch.nn.utils.get_total_norm([q.grad for q in module.parameters() if q.grad is not None])
        given = [{**own, "max_norm": p["limit"] * float(norm)} for own in given]
    return [{**own, "numbers": NUMBERS} for own in given]


def on_rank(answer: Any, weights: Any, updates: Any, max_norm: Any, old: Any, marked: Any, numbers: Any) -> Any:
    from dtlearn.runtime.rank.task import mark as set_mark

    mark = set_mark if marked else lambda label: None

    module: Any = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
    module.load_state_dict(weights)
    model: Any = torch.nn.parallel.DistributedDataParallel(module, bucket_cap_mb=3e-5)
    for _ in range(2):  # DDP forms its buckets after the first backward pass
        model(updates[0][0][0]).sum().backward()
    optimizer = torch.optim.SGD(model.parameters(), lr=numbers["lr"], momentum=numbers["momentum"])
    scaler = torch.amp.GradScaler("cpu", init_scale=numbers["scale"], growth_interval=numbers["growth"])
    forward, backward, inner, live, notes = list[bool](), list[bool](), list[bool](), list[int](), {}
    model.register_forward_pre_hook(lambda *_: forward.append(model.require_backward_grad_sync))
    model.register_forward_pre_hook(lambda *_: live.append(len(forward) - len(backward)))
    model.register_forward_pre_hook(lambda *_: mark("pass") if len(forward) <= 50 else None)
    module.register_forward_pre_hook(lambda *_: inner.append(True))
    module[2].bias.register_hook(lambda _: backward.append(model.require_backward_grad_sync))
    infinite = lambda g: torch.where(g.abs() > numbers["largest"], g * torch.inf, g)  # noqa: E731
    module.register_forward_hook(lambda _, args, out: out.register_hook(infinite) and None)
    for number, micro_batches in enumerate(updates, 1):
        for one in (forward, backward, inner, live):
            one.clear()
        for parameter in module.parameters():
            parameter.grad = torch.full_like(parameter, old)
        mark("begin")
        answer(model, [tuple(pair) for pair in micro_batches], scaler, optimizer, max_norm)
        facts: dict[str, Any] = {"forward passes of the model": len(forward), "of the module in it": len(inner)}
        facts |= {"backward passes": len(backward), "kept at once": "one" if max(live, default=1) == 1 else "several"}
        facts["backward passes that reduce"] = "all" if len(forward) > 1 and all(forward) else "the last"
        parameters = {name: p.detach().clone() for name, p in module.named_parameters()}
        finite = all(bool(p.isfinite().all()) for p in parameters.values())
        result = {"scale": scaler.get_scale(), "parameters": parameters if finite else "infinite or NaN"}
        notes[f"update {number}"] = facts | result
    return notes


def module_of(weights: dict[str, torch.Tensor]) -> torch.nn.Sequential:
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
    module.load_state_dict(weights)
    return module


def backward(
    module: torch.nn.Module, given: Given, update: int, scaled: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    """Run all micro-batches of all ranks, one by one; large gradients become infinite, and the ranks' mean is taken."""
    module.zero_grad()
    for own in given:
        for x, y in own["updates"][update]:
            out = module(x)
            out.register_hook(lambda g: torch.where(g.abs() > NUMBERS["largest"], g * torch.inf, g))
            scaled(mse_loss(out, y) / len(own["updates"][update])).backward()
    for parameter in module.parameters():
        assert parameter.grad is not None
        parameter.grad /= len(given)


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    """The results of one process with all micro-batches."""
    module, facts = module_of(given[0]["weights"]), dict[str, Any]()
    optimizer = torch.optim.SGD(module.parameters(), lr=NUMBERS["lr"], momentum=NUMBERS["momentum"])
    scaler = torch.amp.GradScaler("cpu", init_scale=NUMBERS["scale"], growth_interval=int(NUMBERS["growth"]))
    k = len(given[0]["updates"][0])
    for update in range(len(given[0]["updates"])):
        backward(module, given, update, scaler.scale)
        scaler.unscale_(optimizer)
        clip_grad_norm_(module.parameters(), given[0]["max_norm"])
        scaler.step(optimizer)
        scaler.update()
        facts[f"update {update + 1}"] = {
            "forward passes of the model": k,
            "of the module in it": k,
            "backward passes": k,
            "kept at once": "one",
            "backward passes that reduce": "the last",
            "scale": scaler.get_scale(),
            "parameters": {name: p.detach().clone() for name, p in module.named_parameters()},
        }
    return [facts] * case.world_size


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    """No rank makes a call before the last micro-batch of an update."""
    if "marked" not in case.params:
        return None
    marked = steps_of(record, "begin( pass)*", [len(given[0]["updates"])] * case.world_size)
    if isinstance(marked, Finding):
        return marked
    for rank, updates in enumerate(marked):
        early = [(marks[0].came_ns, marks[-1].came_ns) for marks in updates]
        for event in record.select(rank=rank):
            if event.nbytes and any(begin <= event.start_ns < end for begin, end in early):
                by = f"line {event.line} of rank {rank} leads to {event.op}" if event.line else ""
                text = (
                    f"{by or f'rank {rank} calls {event.op}'} before the last micro-batch: until then gradients only "
                )
                text += "add up, within model.no_sync()"
                return Finding("DTL-RULE-MESSAGES", text, rank, event.line or None)
    return None


def sent_once(case: Case, given: Given, record: Record) -> Finding | None:
    """The gradients go over the network once in an update."""
    n = payload(case, given)
    for rank in range(case.world_size):
        if (made := record.nbytes(rank=rank) / calls(case)) > n + 8:
            text = f"rank {rank} sent {made:,.0f} bytes an update, of n + 8 at most, where n = {n} is the size of all "
            text += "gradients, which are sent once, and 8 bytes are room for two flags"
            return Finding("DTL-RULE-BYTES", text, rank)
    return None


def payload(case: Case, given: Given) -> int:
    return sum(4 * int(t.numel()) for t in given[0]["weights"].values())


def calls(case: Case) -> int:
    return len(case.params.get("overflows", [None]))


def least_bytes(case: Case, given: Given) -> float:
    return payload(case, given) * sum(overflow is None for overflow in case.params.get("overflows", [None]))


CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    verify=verify,
    rules=[no_silent_rank(least_bytes=least_bytes), sent_once],
    payload=payload,
    calls=calls,
    reads=[no_stores],
    rtol=1e-3,
    atol=1e-4,
)
