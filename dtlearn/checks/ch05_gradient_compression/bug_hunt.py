"""ch05.bug_hunt: local steps and compressed meetings, each of the three bugs in a case that shows this one only."""

from __future__ import annotations

import textwrap
from typing import Any

import torch
from torch.nn.functional import mse_loss

from dtlearn.grading import Case, Check, Edit, Given
from dtlearn.runtime.record.record import Record

from ..own_work import no_objects
from ..sent import no_silent_rank, no_stores
from . import MAY_HELP

# Per case: `epochs`, `batches` in each, `h`; `look`, what of the model is compared; `still`, whether a column of x
# is 0.
CASES: dict[str, dict[str, Any]] = {
    "one meeting": {"epochs": 1, "batches": 2, "h": 2},
    "four meetings": {
        "says": "a meeting goes on from the last one: with its parameters, with what this rank has not sent, and with "
        "the momentum of its steps",
        "epochs": 2,
        "batches": 4,
        "h": 2,
    },
    "a meeting after two epochs": {
        "says": "steps are counted through all epochs: h may be more than the batches of one",
        "epochs": 2,
        "batches": 3,
        "h": 6,
    },
    "a column of x that is always 0": {
        "says": "the sign of 0 is 0: an element that has not moved, and has no residual, sends 0",
        "epochs": 1,
        "batches": 4,
        "h": 2,
        "still": True,
    },
    "the buffers": {
        "says": "all floating-point buffers get their means over the ranks, at each meeting and at no other time: "
        "parameters are not all of a model",
        "epochs": 2,
        "batches": 4,
        "h": 2,
        "look": "buffers",
    },
}
LOOP = """    step = 0
    for _ in range(epochs):
        for x, y in batches:
            optimizer.zero_grad()
            mse_loss(model(x), y).backward()
            optimizer.step()
            step += 1
            if step % h != 0:
                continue
            for p, start, residual in zip(parameters, starts, residuals, strict=True):
                total = p.detach() - start + residual
                sent = total.sign() * total.abs().mean()
                residual.copy_(total - sent)
                dist.all_reduce(sent)
                start += sent / n
                p.data.copy_(start)
            for buffer in model.buffers():
                if buffer.is_floating_point():
                    dist.all_reduce(buffer)
                    buffer /= n
"""
SENT, KEEP = "sent = total.sign() * total.abs().mean()", "residual.copy_(total - sent)"
SUM, GO_ON = "dist.all_reduce(sent)\n", "start += sent / n"
COPY, MEET = "p.data.copy_(start)", "if step % h != 0:\n                continue"
EPOCH, STEP = "for _ in range(epochs):\n        for x, y in batches:", "mse_loss(model(x), y).backward()\n"
EACH = "for p, start, residual in zip(parameters, starts, residuals, strict=True):"
BUFFERS = """            for buffer in model.buffers():
                if buffer.is_floating_point():
                    dist.all_reduce(buffer)
                    buffer /= n
"""
UNFED = {KEEP: "pass"}  # residuals stay zero
PER_EPOCH = {EPOCH: "for _ in range(epochs):\n        step = 0\n        for x, y in batches:"}


def edit(says: str, changes: dict[str, str]) -> Edit:
    """An edit of the loop in the solution, which has the same lines as `as_found`."""
    return Edit(says, {LOOP: Edit(says, changes).applied_to(LOOP)})


EDITS = (
    edit("everything ends as with the program that was found. Begin with one rank and one parameter: over two "
         "meetings, compare what it has sent with what it has changed", {**UNFED, **PER_EPOCH, BUFFERS: ""}),
    edit("what a rank has not sent is lost: at the next meeting it is added to the change", UNFED),
    edit("steps are counted anew in each epoch: every h steps, counted through all epochs, the ranks meet", PER_EPOCH),
    edit("the buffers of the ranks are not averaged: each rank has its own", {BUFFERS: ""}),
    edit("the buffers are added up over the ranks, and not divided by their number", {"buffer /= n": "pass"}),
    edit("all ranks have the buffers of rank 0: they get their means over the ranks",
         {BUFFERS: BUFFERS.replace("all_reduce(buffer)", "broadcast(buffer, 0)").replace("buffer /= n", "pass")}),
    edit("the buffers are averaged at the end only: they get their means at each meeting, as what a buffer becomes may "
         "depend on what it was", {BUFFERS: textwrap.indent(textwrap.dedent(BUFFERS), "    ")}),
    edit("the buffers are averaged at the end of each epoch: they get their means at each meeting",
         {BUFFERS: textwrap.indent(textwrap.dedent(BUFFERS), "        ")}),
    edit("the buffers are averaged after each step: they get their means at the meetings only",
         {BUFFERS: "", MEET: f"{BUFFERS.lstrip()}            {MEET}"}),
    edit("the buffers of a BatchNorm are averaged, and no others: all floating-point buffers of the model are",
         {"for buffer in model.buffers()": "for name, buffer in model.named_buffers()",
          "if buffer.is_floating_point()": 'if name.split(".")[-1] in ("running_mean", "running_var")'}),
    *(edit("an element whose sum is 0 is sent as plus or minus the scale: the sign of 0 is 0",
           {SENT: f"sent = torch.where({which}, 1.0, -1.0) * total.abs().mean()"})
      for which in ("total >= 0", "total > 0")),
    edit("what was sent is added up over the ranks, and not divided by their number", {GO_ON: "start += sent"}),
    edit("each rank goes on by what it has sent itself: the mean over the ranks is taken",
         {SUM: "pass\n", GO_ON: "start += sent"}),
    edit("signs are sent without their scale, the mean of the absolute values", {SENT: "sent = total.sign()"}),
    edit("the scale is the largest absolute value: it is the mean of them",
         {SENT: "sent = total.sign() * total.abs().max()"}),
    edit("the scale is the norm: it is the mean of the absolute values", {SENT: "sent = total.sign() * total.norm()"}),
    edit("all parameters have one scale together: each has its own",
         {EACH: "every = zip(parameters, starts, residuals, strict=True)\n            scale = torch.cat([(p.detach() "
                f"- s + r).flatten() for p, s, r in every]).abs().mean()\n            {EACH}",
          SENT: "sent = total.sign() * scale"}),
    edit("all is sent as it is: the signs are, times the mean of the absolute values", {SENT: "sent = total.clone()"}),
    edit("signs and scales are averaged over the ranks apart: each rank's signs belong to its own scale",
         {SENT: "scale, sent = total.abs().mean(), total.sign()", KEEP: "residual.copy_(total - scale * sent)",
          SUM: "dist.all_reduce(scale)\n                dist.all_reduce(sent)\n",
          GO_ON: "start += sent / n * scale / n"}),
    edit("the residual is what the mean of all ranks leaves of this rank's change: it is what this rank has not sent",
         {KEEP: "pass", GO_ON: f"{GO_ON}\n                residual.copy_(total - sent / n)"}),
    edit("the residual leaves out the residual before: it is all that this rank has not sent, of the sum",
         {KEEP: "residual.copy_(p.detach() - start - sent)"}),
    edit("the residual before is counted twice: it is in the sum already", {KEEP: "residual += total - sent"}),
    edit("residuals are averaged over the ranks: each rank keeps what it has not sent itself",
         {KEEP: f"{KEEP}; dist.all_reduce(residual); residual /= n"}),
    edit("residuals are lost at the end of an epoch: at the next meeting they are added to the change",
         {EPOCH: EPOCH.replace("        for x", "        for residual in residuals:\n            residual.zero_()\n"
                               "        for x")}),
    edit("the change is counted from the start of the training: it is the change since the last meeting",
         {GO_ON: "new = start + sent / n", COPY: "p.data.copy_(new)"}),
    edit("what was sent is added to a rank's own parameters: all ranks go on from those of the last meeting",
         {COPY: "p.data += sent / n"}),
    edit("the parameters of a rank stay its own at a meeting: all ranks begin their next steps at the same ones",
         {COPY: "pass"}),
    edit("the momentum is gone after a meeting: it stays on its rank, and goes on",
         {EACH: f"optimizer.state.clear()\n            {EACH}"}),
    edit("the momentum is averaged at a meeting: it stays on its rank",
         {EACH: "for state in optimizer.state.values():\n                dist.all_reduce(state['momentum_buffer'])\n"
                f"                state['momentum_buffer'] /= n\n            {EACH}"}),
    edit("gradients are averaged in each step: between two meetings a rank trains alone",
         {STEP: f"{STEP}            for p in parameters:\n                dist.all_reduce(p.grad)\n                "
                "p.grad /= n\n"}),
    edit("the ranks meet after every step: they meet after every h of them", {MEET: "pass"}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    g, p, given = case.generator(), case.params, []
    start, slope = 0.3 * torch.randn(4, generator=g), torch.tensor([[1.0], [-2.0], [1.5]])
    for rank in range(case.world_size):
        x = torch.randn(p["batches"], 4, 3, generator=g) * torch.tensor([1.0, 2.0, 0.5]) + 0.3 * rank
        if "still" in p:
            x[..., 2] = 0.0
        batches = [[one, one @ slope + 1.0 + rank] for one in x]
        given.append({"start": start, "batches": batches, "epochs": p["epochs"], "h": p["h"], "lr": 0.1})
    return [{**own, "look": p.get("look", "parameters")} for own in given]


def on_rank(answer: Any, start: Any, batches: Any, epochs: Any, h: Any, lr: Any, look: Any = "parameters") -> Any:
    # The variance of four rows can be next to nothing, and dividing by its root would make rounding visible.
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(3, eps=0.1), torch.nn.Linear(3, 1))
    model[1].load_state_dict({"weight": start[None, :3].clone(), "bias": start[3:].clone()})
    model.register_buffer("size", torch.ones(3))  # unlike a BatchNorm's, no linear function of what it was

    def follow(model: Any, inputs: tuple[torch.Tensor]) -> None:
        model.size.copy_((model.size * inputs[0].detach().abs().mean(0)).sqrt())

    model.register_forward_pre_hook(follow)
    answer(model, [tuple(pair) for pair in batches], epochs, h, lr)
    found = model.named_parameters() if look == "parameters" else model.named_buffers()
    return {name: one.detach().clone() for name, one in found}


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    """One process with a model and an optimizer for each rank, in float64."""
    own, models = given[0], list[torch.nn.Module]()
    for each in given:
        on_rank(lambda model, *_: models.append(model.double()), **each)  # the models as they begin
    optimizers = [torch.optim.SGD(one.parameters(), lr=own["lr"], momentum=0.9) for one in models]
    starts, kept = [p.detach().clone() for p in models[0].parameters()], [[0.0] * 4 for _ in given]
    for step in range(own["epochs"] * len(own["batches"])):
        for one, optimizer, mine in zip(models, optimizers, given, strict=True):
            x, y = mine["batches"][step % len(own["batches"])]
            optimizer.zero_grad()
            mse_loss(one(x.double()), y.double()).backward()
            optimizer.step()
        if (step + 1) % own["h"] == 0:
            for i, copies in enumerate(zip(*(one.parameters() for one in models), strict=True)):
                wanted = [p.detach() - starts[i] + own_kept[i] for p, own_kept in zip(copies, kept, strict=True)]
                sent = [w.sign() * w.abs().mean() for w in wanted]
                for own_kept, w, s in zip(kept, wanted, sent, strict=True):
                    own_kept[i] = w - s
                starts[i] = sum(sent, start=starts[i] * len(sent)) / len(sent)
                for p in copies:
                    p.data.copy_(starts[i])
            for copies in zip(*(one.buffers() for one in models), strict=True):
                mean = sum(b.double() for b in copies) / len(copies)
                for b in copies:
                    b.copy_(mean)
    found = models[0].named_parameters() if own["look"] == "parameters" else models[0].named_buffers()
    facts = {name: one.detach().float() if one.is_floating_point() else one for name, one in found}
    return [facts] * case.world_size


def why(case: Case, given: Given, record: Record) -> str:
    if any(event.dtype == "int64" and event.shape == () for event in record):
        return f"{MAY_HELP}only floating-point buffers get a mean. A BatchNorm's count of batches is a whole number"
    return f"{MAY_HELP}{case.says}" if case.says else ""


CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    why=why,
    rules=[no_silent_rank(least_calls=lambda case, given: 1)],
    reads=[no_stores, no_objects],
    rtol=2e-4,
    atol=2e-5,
)
