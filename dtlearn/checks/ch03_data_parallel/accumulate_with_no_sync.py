"""ch03.accumulate_with_no_sync: two updates of a model under torch's DDP, which is cut into several buckets."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import mse_loss

from dtlearn.grading import Case, Check, Edit, Finding, Given
from dtlearn.runtime.record.record import Record

UPDATES, ROWS = 2, 5  # ROWS is no world size, so that a division by one is not taken for one by the other
SHAPES = {"0.weight": (4, 3), "0.bias": (4,), "2.weight": (2, 4), "2.bias": (2,)}
CASES: dict[str, dict[str, Any]] = {
    "3 micro-batches": {
        "says": "afterwards each gradient is that of the mean over all micro-batches of all ranks",
        "k": 3,
    },
    "1 micro-batch": {"says": "with one micro-batch the gradient is that of its own mean", "k": 1},
}
COUNT, APART = "count = len(micro_batches)", "with model.no_sync():"
PASS = "(mse_loss(model(x), y) / count).backward()"
EARLIER, LAST = f"micro_batches[:-1]:\n            {PASS}", f"x, y = micro_batches[-1]\n    {PASS}"
PAST = "call `model` itself, in each forward pass: past it, as with model.module, DDP cannot prepare the backward pass"


def both(old: str, new: str) -> dict[str, str]:
    """An edit in the passes of all micro-batches."""
    return {text: text.replace(old, new) for text in (EARLIER, LAST)}


# The special ones first: of two that lead to the same values the first one names them.
EDITS = (
    Edit("each loss is divided by 3, however many micro-batches there are: divide by len(micro_batches)",
         {COUNT: "count = 3"}),
    Edit("the last micro-batch is within no_sync() too, so no backward pass averages over the ranks. Does the "
         "condition contain a fixed number? Use len(micro_batches)",
         {LAST: f"with model.no_sync():\n        x, y = micro_batches[-1]; {PASS}"}),
    Edit("divided by the number of ranks, too: DDP takes the mean over them itself",
         {COUNT: f"{COUNT} * torch.distributed.get_world_size()"}),
    Edit("only the first micro-batch is averaged over the ranks, the others are each rank's own: the last backward "
         "pass is the one that has to communicate, with all that was added up before",
         {LAST: "pass", APART: f"x, y = micro_batches[0]; {PASS}\n    {APART}",
          "micro_batches[:-1]": "micro_batches[1:]"}),
    Edit("the gradients of the step before are still in: a backward pass adds to p.grad, so begin with zero_grad",
         {"model.zero_grad()": "pass"}),
    Edit("only the last micro-batch is in the gradient: zero_grad emptied it between them?",
         {"x, y = micro_batches[-1]": "model.zero_grad(); x, y = micro_batches[-1]"}),
    Edit("the last micro-batch is not divided by their number, as the others are: it weighs more",
         {LAST: LAST.replace(" / count", "")}),
    Edit("only the last micro-batch is divided by their number: the others weigh more",
         {EARLIER: EARLIER.replace(" / count", "")}),
    Edit("what was added up is divided by the number of micro-batches after every one, so the first is divided several "
         "times: divide each loss, or the sum once at the end",
         both(" / count).backward()", ").backward(); [p.grad.div_(count) for p in model.parameters()]")),
    Edit("the sum over the micro-batches, not divided by their number: each loss is a mean, and so is that of all",
         {COUNT: "count = 1"}),
    Edit("divided twice by the number of micro-batches: divide each loss, or the sum once at the end",
         {COUNT: f"{COUNT} ** 2"}),
    Edit("divided by the number of rows of a micro-batch in place of the number of micro-batches",
         {COUNT: "count = len(micro_batches[0][0])"}),
    Edit("divided by one less than the number of micro-batches", {COUNT: f"{COUNT} - 1"}),
    Edit("each loss is a sum over the elements of a micro-batch: it is their mean",
         both("x), y", "x), y, reduction='sum'")),
    Edit("the gradients are gone: zero_grad() came after the last backward pass",
         {LAST: f"{LAST}; model.zero_grad()"}),
    Edit("the parameters were changed: the optimizer step comes later, and is not yours",
         {LAST: f"{LAST}; torch.optim.SGD(model.parameters(), lr=0.1).step()"}),
    Edit("all backward passes reduced the gradients: all but the last belong in a block `with model.no_sync():`; "
         "calling model.no_sync() without `with` does nothing", {APART: "if True:"}),
    Edit("the backward pass is within no_sync(), the forward pass is not: DDP decides in the forward pass, so all "
         "backward passes reduced the gradients",
         {APART: "if True:", EARLIER: EARLIER.replace("(mse", "loss = (mse").replace(".backward()", "\n            "
          "with model.no_sync():\n                loss.backward()")}),
    Edit("the model was called once for several micro-batches: all of them at once need the memory that they were cut "
         "up to save",
         {APART: "if False:",
          LAST: "x, y = (torch.cat(t) for t in zip(*micro_batches)); mse_loss(model(x), y).backward()"}),
    Edit("one backward pass for several micro-batches: so all are kept at once, in the memory that they were cut up to "
         "save",
         {COUNT: f"{COUNT}; total = 0", EARLIER: EARLIER.replace("(mse", "total += (mse").replace(".backward()", ""),
                  LAST: LAST.replace("(mse", "(total + mse")}),
    Edit(PAST, {EARLIER: EARLIER.replace("model(x)", "model.module(x)")}),
    Edit(PAST, both("model(x)", "model.module(x)")),
    Edit("the model was called more often than there are micro-batches: each belongs into one forward pass",
         {"micro_batches[:-1]": "micro_batches"}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    g, given = case.generator(), []
    weights = {name: torch.randn(shape, generator=g) for name, shape in SHAPES.items()}
    for rank in range(case.world_size):
        updates = [
            [
                [torch.randn(ROWS, 3, generator=g) + rank, torch.randn(ROWS, 2, generator=g)]
                for _ in range(case.params["k"])
            ]
            for _ in range(UPDATES)
        ]
        given.append({"weights": weights, "updates": updates})
    return given


def on_rank(answer: Any, weights: Any, updates: Any) -> Any:
    module: Any = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
    module.load_state_dict(weights)
    model: Any = torch.nn.parallel.DistributedDataParallel(module, bucket_cap_mb=3e-5)
    for _ in range(2):  # DDP forms its buckets after the first backward pass
        model(updates[0][0][0]).sum().backward()
    forward, backward, inner = (
        list[bool](),
        list[bool](),
        list[bool](),
    )  # whether DDP would reduce then; the forward pass decides
    model.register_forward_pre_hook(lambda *_: forward.append(model.require_backward_grad_sync))
    module.register_forward_pre_hook(lambda *_: inner.append(True))
    module[2].bias.register_hook(lambda _: backward.append(model.require_backward_grad_sync))
    notes = {}
    for number, micro_batches in enumerate(updates):
        for passes in (forward, backward, inner):
            passes.clear()
        for parameter in module.parameters():
            parameter.grad = torch.full_like(parameter, 7.0)  # as from an earlier step
        answer(model, [tuple(pair) for pair in micro_batches])
        k = len(micro_batches)
        kept = all(torch.equal(p, weights[name]) for name, p in module.named_parameters())
        reduced = "once"
        if any(forward) and forward != [False] * (k - 1) + [True]:  # none: it is done by hand, and the values tell
            reduced = "another time than with the last" if not all(forward) else "all"
            reduced += ", as decided in the forward pass" * (all(forward) and not all(backward))
        right = len(forward) == len(inner) == len(backward) == k and kept and not reduced.startswith("all")
        grads = {name: None if p.grad is None else p.grad.clone() for name, p in module.named_parameters()}
        facts = {
            "forward passes of the model": len(forward),
            "forward passes of the module in it": len(inner),
            "backward passes": len(backward),
            "reduced": reduced,
            "parameters left alone": kept,
        }
        notes[f"update {number + 1}"] = {**facts, "gradients": grads if right else {}}
    return notes


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    """All micro-batches of all ranks as one batch."""
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2)).double()
    module.load_state_dict(given[0]["weights"])
    k, facts = case.params["k"], dict[str, Any]()
    for number in range(UPDATES):
        pairs = [pair for own in given for pair in own["updates"][number]]
        x, y = (torch.cat(column).double() for column in zip(*pairs, strict=True))
        grads = torch.autograd.grad(mse_loss(module(x), y), tuple(module.parameters()))
        facts[f"update {number + 1}"] = {
            "forward passes of the model": k,
            "forward passes of the module in it": k,
            "backward passes": k,
            "reduced": "once",
            "parameters left alone": True,
            "gradients": {name: g.float() for name, g in zip(SHAPES, grads, strict=True)},
        }
    return [facts] * case.world_size


def rule(case: Case, given: Given, record: Record) -> Finding | None:
    """The gradients go over the network once in an update."""
    most = UPDATES * payload(case, given)
    for rank in range(case.world_size):
        made = record.nbytes(rank=rank)
        if made > most:
            text = f"rank {rank} handed over {made / most:.2f}x the bytes of its gradients in an update; once is enough"
            return Finding("DTL-RULE-BYTES", text, rank)
    return None


def payload(case: Case, given: Given) -> int:
    return sum(4 * int(t.numel()) for t in given[0]["weights"].values())


CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    rules=[rule],
    payload=payload,
    calls=lambda case: UPDATES,
    rtol=1e-4,
    atol=1e-5,
)
