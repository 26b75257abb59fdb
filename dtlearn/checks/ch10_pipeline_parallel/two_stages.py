"""ch10.two_stages: small models of two halves on a pair of ranks; the whole model trains in the judge."""

from __future__ import annotations

from typing import Any

import torch

from dtlearn.grading import Case, Check, Edit, Given, Stress, rules
from dtlearn.runtime.record.record import Record

from ..own_work import no_objects
from ..sent import no_silent_rank, no_stores
from . import MAY_HELP

_HEADER = 128  # bytes for the shape, of a batch
ROWS = {"stages": [[["Linear", 2, 3], ["Tanh"]], [["Linear", 3, 2]]], "inputs": [[3, 2], [3, 2]], "pairs": [(0, 1)]}
# Per case: `stages`, as names and arguments in torch.nn; `inputs`, the shapes of the batches; `pairs`, the ranks
# with the first and the last stage; `transposed`, whether the first stage gives the transpose of what it computes.
CASES: dict[str, dict[str, Any]] = {
    "two batches": {**ROWS, "sizes": (2,)},
    "four batches": {
        **ROWS,
        "inputs": [[3, 2]] * 4,
        "sizes": (2,),
        "says": "there is one training step for each batch, however many there are",
    },
    "the first stage on rank 1": {
        **ROWS,
        "pairs": [(1, 0)],
        "sizes": (2,),
        "says": "is_first says which half a rank has, not its number",
    },
    "batches of several sizes": {
        **ROWS,
        "inputs": [[3, 2], [1, 2], [2, 2]],
        "sizes": (2,),
        "says": "each batch's outputs may have another shape: it has to be sent with every one",
    },
    "one to four dimensions": {
        **ROWS,
        "inputs": [[2], [1, 2, 2], [1, 2, 1, 2]],
        "sizes": (2,),
        "says": "the outputs have 1 to 4 dimensions, in each batch perhaps another number",
    },
    "outputs that are not contiguous": {
        "stages": [[["Linear", 2, 3]], [["Linear", 4, 2]]],
        "inputs": [[4, 2], [4, 2]],
        "pairs": [(0, 1)],
        "transposed": True,
        "sizes": (2,),
        "says": "dist.send takes only tensors that are contiguous in memory, which the outputs may not be",
    },
    "tokens": {
        **ROWS,
        "stages": [[["Embedding", 5, 3]], [["Linear", 3, 2]]],
        "inputs": [[2, 3], [2, 3]],
        "sizes": (2,),
        "says": "inputs may be whole numbers, such as tokens",
    },
    "another loss": {**ROWS, "loss": "smooth_l1_loss", "sizes": (2,), "says": "the loss is the one of loss_fn"},
    "two pairs": {
        **ROWS,
        "pairs": [(0, 3), (2, 1)],
        "sizes": (4,),
        "says": "two pairs of ranks train at once: messages go to the rank other, and come from it",
    },
}
ZERO, STEP, BACK = "optimizer.zero_grad()", "        optimizer.step()\n", "outputs.backward(gradient)"
ADDED = "from the second batch on, the gradients of the batches before are added"
SEND_BACK = "dist.send(arrived.grad.contiguous(), other)"
EDITS = (
    Edit("the first stage's parameters are as they were: no gradient reached them, or its optimizer made no step",
         {BACK: "pass"}),
    Edit("the last stage's parameters are as they were: its optimizer made no step",
         {STEP: "        if is_first:\n            optimizer.step()\n"}),
    Edit("the parameters of both stages are as they were: no step was made, or zero_grad() emptied the gradients "
         "between backward and step", {STEP: f"        {ZERO}\n{STEP}"}),
    Edit("the first stage's gradients are those of the sum of its outputs: give the gradient that came back to "
         "outputs.backward(gradient)", {BACK: "outputs.sum().backward()"}),
    Edit("the gradients of the outputs are added up over the batches, and so sent back: the last stage needs a new "
         "tensor, or a new .grad, for each batch",
         {"losses = []": "losses, sums = [], {}", SEND_BACK: "sums[arrived.shape] = sums.get(arrived.shape, 0) + "
          "arrived.grad\n            dist.send(sums[arrived.shape].contiguous(), other)"}),
    Edit(f"{ADDED} (zero_grad() on both ranks)", {f"        {ZERO}\n": ""}),
    Edit(f"{ADDED} on the rank with the first stage", {ZERO: f"if not is_first:\n            {ZERO}"}),
    Edit(f"{ADDED} on the rank with the last stage", {ZERO: f"if is_first:\n            {ZERO}"}),
    Edit("one step is made after all batches, not one for each",
         {STEP: "", f"        {ZERO}\n": "", "    return losses": "    optimizer.step()\n    return losses"}),
    Edit("one step is made after all batches, with the gradients of the last one: a step for each is expected",
         {STEP: "", "    return losses": "    optimizer.step()\n    return losses"}),
    Edit("the step of the last batch is missing: it comes after backward, not before forward",
         {STEP: "", f"        {ZERO}\n": f"{STEP}        {ZERO}\n"}),
    Edit("the first stage is called twice for each batch: keep its outputs for the backward pass",
         {BACK: "stage(batch).backward(gradient)"}),
    Edit("the loss is always the mean squared error: use loss_fn",
         {"loss_fn(stage(arrived), batch)": "torch.nn.functional.mse_loss(stage(arrived), batch)"}),
    Edit("the losses are not returned: a list of floats is expected, one for each batch",
         {"return losses": "return []"}),
    Edit("the losses are added up: a list of floats is expected, one for each batch",
         {"return losses": "return sum(losses)"}),
    Edit("the losses are tensors: floats are expected (.item())", {"loss.item()": "loss.detach()"}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    p, g = case.params, case.generator()
    given: Given = [{} for _ in range(case.world_size)]
    for first, last in p["pairs"]:
        for rank, other, spec in ((first, last, p["stages"][0]), (last, first, p["stages"][1])):
            empty = build({"spec": spec, "weights": []})
            weights = [0.7 * torch.randn(w.shape, generator=g) for w in empty.parameters()]
            given[rank] = {"spec": spec, "weights": weights, "other": other, "is_first": rank == first}
            given[rank] |= {"loss": p.get("loss", "mse_loss"), "transposed": "transposed" in p and rank == first}
        tokens = p["stages"][0][0][0] == "Embedding"
        xs = [torch.randint(5, s, generator=g) if tokens else torch.randn(s, generator=g) for s in p["inputs"]]
        targets = [torch.randn(run(given[last], run(given[first], x)).shape, generator=g) for x in xs]
        given[first]["batches"], given[last]["batches"] = xs, targets
    return given


def build(own: dict[str, Any]) -> torch.nn.Sequential:
    stage = torch.nn.Sequential(*(getattr(torch.nn, name)(*arguments) for name, *arguments in own["spec"]))
    for parameter, weight in zip(stage.parameters(), own["weights"], strict=False):
        parameter.data = weight.clone()
    return stage


def run(own: dict[str, Any], x: torch.Tensor, stage: torch.nn.Sequential | None = None) -> torch.Tensor:
    outputs: torch.Tensor = (stage or build(own))(x)
    return outputs.mT if own["transposed"] else outputs


def on_rank(
    answer: Any, spec: Any, weights: Any, batches: Any, is_first: Any, other: Any, loss: Any, transposed: Any
) -> Any:
    stage, calls = torch.nn.Sequential(*(getattr(torch.nn, name)(*arguments) for name, *arguments in spec)), [0]
    for parameter, weight in zip(stage.parameters(), weights, strict=True):
        parameter.data = weight.clone()

    def called(_: Any, arguments: Any, outputs: Any) -> Any:
        calls[0] += 1
        return outputs.mT if transposed else outputs

    stage.register_forward_hook(called)
    optimizer, loss_fn = torch.optim.SGD(stage.parameters(), lr=0.2, momentum=0.9), getattr(torch.nn.functional, loss)
    try:
        losses = answer(stage, optimizer, [b.clone() for b in batches], loss_fn, is_first=is_first, other=other)
    except (AttributeError, TypeError) as error:
        text = str(error).replace("'NoneType' object", "None").replace("<class 'NoneType'>", "None")
        if text != str(error) and not is_first:
            error.args = (f"{text}; the .grad of what arrived is None without .requires_grad_() before forward",)
        raise
    named = {name: p.detach().clone() for name, p in stage.named_parameters()}
    return {"calls of the stage": calls[0], "losses": losses, "parameters of the stage": named}


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    """Each pair's model as a whole."""
    results: list[dict[str, Any]] = [{} for _ in given]
    for ranks in case.params["pairs"]:
        first, last = (given[rank] for rank in ranks)
        stages = [build(first), build(last)]
        optimizers = [torch.optim.SGD(stage.parameters(), lr=0.2, momentum=0.9) for stage in stages]
        losses: list[float] = []
        for x, target in zip(first["batches"], last["batches"], strict=True):
            loss = getattr(torch.nn.functional, last["loss"])(run(last, run(first, x, stages[0]), stages[1]), target)
            for optimizer in optimizers:
                optimizer.zero_grad()
            loss.backward()
            for optimizer in optimizers:
                optimizer.step()
            losses.append(loss.item())
        for rank, stage, returned in zip(ranks, stages, ([], losses), strict=True):
            named = {name: p.detach() for name, p in stage.named_parameters()}
            results[rank] = {"calls of the stage": len(losses), "losses": returned, "parameters of the stage": named}
    return results


def sent(case: Case, given: Given, extra: int) -> float:
    """Bytes that a rank sends: the outputs, or their gradient, of all batches."""
    first = given[case.params["pairs"][0][0]]
    return sum(run(first, x).nbytes + extra for x in first["batches"])


def why(case: Case, given: Given, record: Record) -> str:
    """The hint for a run that raised, or whose calls do not match."""
    if case.says:
        return f"{MAY_HELP}{case.says}"
    first, last = case.params["pairs"][0]
    events = {rank: record.select(rank=rank).events for rank in (first, last)}
    if all(own and own[-1].end_ns is None for own in events.values()):
        if not any(event.sends for event in events[last]):
            return f"rank {last}, with the last stage, sends no gradient back, and rank {first} waits for it"
        if not any(event.receives for event in events[first]):
            return f"rank {first}, with the first stage, does not receive the gradient that rank {last} sends"
    return ""


CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    why=why,
    rules=[
        rules.only("send", "recv", "isend", "irecv", why="Each message goes to the rank with the other stage."),
        no_silent_rank(least_bytes=lambda case, given: sent(case, given, 0)),
        rules.most_bytes(lambda case, given: sent(case, given, _HEADER)),
    ],
    reads=[no_stores, no_objects],
    stress=Stress(poison=True),
    rtol=1e-4,
    atol=1e-5,
)
