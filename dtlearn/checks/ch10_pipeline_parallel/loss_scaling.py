"""ch10.loss_scaling: micro-batches of one size, of several, with gradients from before; then the loss, a second batch.

The passes are noted at the layers, however the stage is called. One micro-batch may be live at a time.
"""

from __future__ import annotations

from typing import Any

import torch

from dtlearn.grading import Case, Check, Edit, Given, rules
from dtlearn.runtime.record.record import Record

from . import MAY_HELP

SENT = "what is sent back is not scaled, so the stages before get gradients that are too large"
BY_ROWS = "a micro-batch weighs as many rows of the batch as it has: a row of a small one counts as much as any other"
BEFORE = "gradients from before stay in the sum as they are, neither lost nor scaled"
# Per case: `rows` of the micro-batches.
CASES: dict[str, dict[str, Any]] = {
    "equal micro-batches": {"rows": (3, 3)},
    "a smaller last micro-batch": {"rows": (3, 3, 1), "says": BY_ROWS},
    "several sizes": {"rows": (1, 4, 2), "says": BY_ROWS},
    "gradients from before": {"rows": (3, 1), "before": True, "says": BEFORE},
    "another loss": {"rows": (3, 1), "loss": "smooth_l1_loss", "says": "the loss is the one that loss_fn computes"},
    "the returned loss": {
        "rows": (3, 1),
        "with_loss": True,
        "says": "the gradients are right; the loss that is returned is not the mean over all rows",
    },
    "a second batch": {
        "rows": (3, 1),
        "batches": 2,
        "says": "the first batch is right, a second one with the same stage is not: is a hook left on the stage or on "
        "a parameter?",
    },
}
SCALE, ADDED, RETURN = "(len(target) / num_rows)", "batch_loss += loss.item()", "return sent_back, batch_loss"
BACKWARD, APPENDED, LEAF = "loss.backward()", "sent_back.append(leaf.grad)", "leaf = arrived.detach().requires_grad_()"
OWN_LOSS = "loss.item() * num_rows / len(target)"  # before it was scaled
EDITS = (
    Edit("the losses are not scaled: the gradients of each micro-batch's own mean loss are added up",
         {f" * {SCALE}": ""}),
    Edit("each micro-batch weighs 1/m: a row of a small micro-batch counts more than one of a large",
         {SCALE: "(1 / len(targets))"}),
    Edit("each loss is scaled by its rows over m times the rows of the first micro-batch, not over the batch's rows",
         {SCALE: "(len(target) / (len(targets) * len(targets[0])))"}),
    Edit("the batch's rows are counted as if all micro-batches but the last had as many as the first",
         {"sum(len(target) for target in targets)": "len(targets[0]) * (len(targets) - 1) + len(targets[-1])"}),
    Edit("each loss is divided by its rows: it is their mean already", {SCALE: "(1 / len(target))"}),
    Edit("each loss is divided by the rows of the batch, and not multiplied by its own before",
         {SCALE: "(1 / num_rows)"}),
    Edit("each loss is multiplied by its rows, and the sum is not divided by those of the batch",
         {SCALE: "len(target)"}),
    Edit("the loss is scaled by its rows and divided by m as well",
         {SCALE: "(len(target) / num_rows / len(targets))"}),
    Edit(f"{SENT}: the scale belongs to the loss, before its backward pass",
         {APPENDED: "sent_back.append(leaf.grad * (num_rows / len(target)))"}),
    Edit(f"{SENT}; and dividing .grad by m afterwards divides gradients from before too: scale the loss, before "
         "backward",
         {f" * {SCALE}": "", RETURN: f"for p in stage.parameters():\n        p.grad /= len(targets)\n    {RETURN}"}),
    Edit("gradients from before are lost: nothing may be set to zero here",
         {"num_rows = sum": "stage.zero_grad()\n    num_rows = sum"}),
    Edit("only the gradient of the last micro-batch is left: .grad is emptied between them",
         {LEAF: f"stage.zero_grad(); {LEAF}"}),
    Edit("None is sent back: activations get a .grad if requires_grad_() comes before the forward pass",
         {LEAF: "leaf = arrived.detach()", "assert leaf.grad is not None": ""}),
    Edit("all forward passes come before the first backward pass, so all micro-batches are live at once: with the "
         "backward pass of each before the next forward pass the activations of only one take memory",
         {f"{BACKWARD}\n        assert leaf.grad is not None\n        {APPENDED}\n        {ADDED}":
          "sent_back.append(leaf)\n        batch_loss = batch_loss + loss",
          RETURN: "batch_loss.backward()\n    return [leaf.grad for leaf in sent_back], batch_loss.item()"}),
    Edit("when a forward pass begins, the activations of a micro-batch before are still kept: retain_graph=True keeps "
         "them after backward, for as long as the loss is kept as a tensor",
         {BACKWARD: "loss.backward(retain_graph=True)", ADDED: "batch_loss = batch_loss + loss",
          RETURN: f"{RETURN}.item()"}),
    Edit("the gradients are right; the loss returned is the mean of the micro-batches' losses, in which a row of a "
         "small one counts more", {ADDED: f"batch_loss += {OWN_LOSS} / len(targets)"}),
    Edit("the gradients are right; the loss returned is the sum of the micro-batches' losses",
         {ADDED: f"batch_loss += {OWN_LOSS}"}),
    Edit("the gradients are right; the loss returned is that of the last micro-batch",
         {ADDED: f"batch_loss = {OWN_LOSS}"}),
    Edit("the gradients are right; the loss returned is the scaled one of the last micro-batch",
         {ADDED: "batch_loss = loss.item()"}),
    Edit("the gradients are right; the loss returned is the scaled losses' mean: their sum is the mean over all rows",
         {ADDED: f"{ADDED} / len(targets)"}),
    Edit("the loss returned is a tensor: a float is expected (.item())", {ADDED: "batch_loss += loss.detach()"}),
    Edit("the loss is always the mean squared error: use loss_fn",
         {"loss_fn(stage(leaf), target)": "torch.nn.functional.mse_loss(stage(leaf), target)"}),
)  # fmt: skip
EXAMPLE = {
    "weights": [torch.tensor([[2.0]])],
    "gradients": [None],
    "activations": [torch.tensor([[1.0], [2.0]]), torch.tensor([[4.0]])],
    "targets": [torch.tensor([[0.0], [0.0]]), torch.tensor([[1.0]])],
    **{"loss": "l1_loss", "batches": 1, "with_loss": True},
}


def inputs(case: Case) -> Given:
    p, g = case.params, case.generator()
    weights = [torch.randn(3, 2, generator=g), torch.randn(2, 3, generator=g)]
    own = {
        "weights": weights,
        "gradients": [torch.randn(w.shape, generator=g) if "before" in p else None for w in weights],
        "activations": [torch.randn(n, 2, generator=g) for n in p["rows"]],
        "targets": [torch.randn(n, 2, generator=g) for n in p["rows"]],
        "loss": p.get("loss", "mse_loss"),
    }
    return [{**own, "batches": p.get("batches", 1), "with_loss": "with_loss" in p}] * case.world_size


def on_rank(
    answer: Any, weights: Any, gradients: Any, activations: Any, targets: Any, loss: Any, batches: Any, with_loss: Any
) -> Any:
    import weakref

    stage = torch.nn.Sequential(torch.nn.Linear(1, 1, bias=False))
    if len(weights) > 1:
        stage.extend([torch.nn.Tanh(), torch.nn.Linear(1, 1, bias=False)])
    for p, weight, gradient in zip(stage.parameters(), weights, gradients, strict=True):
        p.data = weight.clone()
        p.grad = None if gradient is None else gradient.clone()
    passes: Any = []
    inside: Any = []  # weak references to activations that a backward pass needs, and frees

    def note_forward(_: Any, arguments: Any, outputs: Any) -> None:
        kept = any(one() is not None for one in inside)
        passes.append(f"forward of {len(arguments[0])} rows" + " with activations from before" * kept)

    def note_backward(_: Any, arguments: Any, outputs: Any) -> None:
        rows = len(arguments[0])  # the hook must not keep the tensor
        outputs.register_hook(lambda _: passes.append(f"backward of {rows} rows"))

    stage[0].register_forward_hook(note_forward)  # of the layers: seen however the stage is called
    if len(stage) > 1:
        stage[1].register_forward_hook(lambda *outputs: inside.append(weakref.ref(outputs[-1])))
    stage[-1].register_forward_hook(note_backward)
    for _ in range(batches):
        passes.clear()
        arrived, wanted = ([one.clone() for one in many] for many in (activations, targets))
        returned = answer(stage, arrived, wanted, getattr(torch.nn.functional, loss))
    is_pair = isinstance(returned, tuple | list) and len(returned) == 2
    sent, batch_loss = returned if is_pair else (None, None)
    facts = {
        "returned": "what is sent back and the loss" if is_pair else type(returned).__name__,
        "passes, one after the other": ", ".join(passes),
        "gradients": [p.grad for p in stage.parameters()],
        "sent back": list(sent) if isinstance(sent, tuple | list) else sent,
        "parameters left alone": all(torch.equal(p, w) for p, w in zip(stage.parameters(), weights, strict=True)),
    }
    return {**facts, "loss": batch_loss} if with_loss else facts


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    """The batch as a whole, in float64."""
    own = given[0]
    first, last = (w.double().requires_grad_() for w in own["weights"])
    rows, whole = [len(target) for target in own["targets"]], torch.cat(own["activations"]).double().requires_grad_()
    outputs = torch.tanh(whole @ first.T) @ last.T
    loss = getattr(torch.nn.functional, own["loss"])(outputs, torch.cat(own["targets"]).double())
    *of_weights, of_whole = torch.autograd.grad(loss, [first, last, whole])
    sums = [own["batches"] * g for g in of_weights]
    facts = {
        "returned": "what is sent back and the loss",
        "passes, one after the other": ", ".join(f"forward of {n} rows, backward of {n} rows" for n in rows),
        "gradients": [(g if o is None else g + o).float() for g, o in zip(sums, own["gradients"], strict=True)],
        "sent back": list(of_whole.float().split(rows)),
        "parameters left alone": True,
    }
    return [{**facts, "loss": loss.item()} if own["with_loss"] else facts]


def why(case: Case, given: Given, record: Record) -> str:
    return f"{MAY_HELP}activations have no gradient before .requires_grad_(); {case.says or '.grad may be None'}"


CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    example=[EXAMPLE],
    why=why,
    rules=[rules.most_messages("0")],
    rtol=1e-4,
    atol=1e-5,
)
