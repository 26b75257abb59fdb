"""ch10.loss_scaling: batches cut evenly and not, with gradients from before and without.

Compared is what the parameters get, what is sent back and the loss; one micro-batch may be live at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from dtlearn.grading import Case, Check, Finding, Given, Mistake, compare, difference, rules
from dtlearn.runtime.record.record import Record

from . import MAY_HELP

# Rows of the micro-batches, whether there are gradients from before, and the loss.
_JOBS = (
    ((4, 4, 4, 2), False, "mse_loss"),
    ((3, 3, 3), True, "cross_entropy"),
    ((2, 2, 1), True, "smooth_l1_loss"),
    ((5,), True, "mse_loss"),
    ((1, 6, 2, 4, 3), False, "cross_entropy"),
)


def inputs(case: Case) -> Given:
    g = case.generator()
    jobs = []
    for rows, before, loss in _JOBS:
        weights = [0.8 * torch.randn(shape, generator=g) for shape in ((6, 4), (6,), (3, 6), (3,))]
        activations = [torch.randn(n, 2, 4, generator=g) for n in rows]
        if loss == "cross_entropy":
            targets = [torch.randint(3, (n, 2), generator=g) for n in rows]
        else:
            targets = [torch.randn(n, 2, 3, generator=g) for n in rows]
        old = [torch.randn(w.shape, generator=g) if before else None for w in weights]
        jobs.append({"weights": weights, "old": old, "activations": activations, "targets": targets, "loss": loss})
    return [{"jobs": jobs}] * case.world_size


def on_rank(answer: Any, jobs: Any) -> Any:
    import weakref

    notes: Any = []
    for job in jobs:
        stage = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Tanh(), torch.nn.Linear(6, 3))
        for p, weight, old in zip(stage.parameters(), job["weights"], job["old"], strict=True):
            p.data = weight.clone()
            p.grad = None if old is None else old.clone()
        passes: Any = []
        inside: Any = []  # weak references to activations that a backward pass needs, and frees

        def note_forward(_: Any, arguments: Any, outputs: Any, passes: Any = passes, inside: Any = inside) -> None:
            passes.append(["F" if not any(one() is not None for one in inside) else "F+", len(arguments[0])])

        def note_backward(_: Any, arguments: Any, outputs: Any, passes: Any = passes) -> None:
            rows = len(arguments[0])
            outputs.register_hook(lambda _: passes.append(["B", rows]))

        stage[0].register_forward_hook(note_forward)  # of the layers: seen however the stage is called
        stage[1].register_forward_hook(lambda *outputs, inside=inside: inside.append(weakref.ref(outputs[-1])))
        stage[-1].register_forward_hook(note_backward)

        def loss_fn(outputs: Any, targets: Any, name: str = job["loss"]) -> Any:
            if name == "cross_entropy":
                outputs, targets = outputs.flatten(0, 1), targets.flatten()
            return getattr(torch.nn.functional, name)(outputs, targets)

        activations, targets = ([one.clone() for one in job[name]] for name in ("activations", "targets"))
        returned = answer(stage, activations, targets, loss_fn)
        is_pair = isinstance(returned, tuple | list) and len(returned) == 2
        gradients = [p.grad if p.grad is None else p.grad.clone() for p in stage.parameters()]
        weights = [p.detach().clone() for p in stage.parameters()]
        own = {"passes": list(passes), "gradients": gradients, "weights": weights}
        answer(stage, [one.clone() for one in job["activations"]], targets, loss_fn)  # a second batch, the same
        own["twice"] = [p.grad for p in stage.parameters()]
        if not is_pair:
            notes.append({**own, "returned": type(returned).__name__})
        else:
            sent = list(returned[0]) if isinstance(returned[0], tuple | list) else returned[0]
            notes.append({**own, "sent": sent, "loss": returned[1]})
    return notes


@dataclass(frozen=True)
class Way:
    """How a batch's gradients are put together.

    Attributes:
        weigh: from the rows of all micro-batches, the weight of each one's loss.
        sent: the same for what is sent back; None: as `weigh`.
        old: what becomes of gradients from before: they stay, "lost" or "scaled" with all others by 1/m.
    """

    weigh: Callable[[Sequence[int]], list[float]]
    sent: Callable[[Sequence[int]], list[float]] | None = None
    old: str = ""


def _by_rows(rows: Sequence[int]) -> list[float]:
    return [n / sum(rows) for n in rows]


def _equal(rows: Sequence[int]) -> list[float]:
    return [1 / len(rows)] * len(rows)


def _one(rows: Sequence[int]) -> list[float]:
    return [1.0] * len(rows)


RIGHT = Way(_by_rows)
_SENT = "what is sent back is not scaled, so the stages before get gradients that are too large: scale the loss before "
_SENT += "backward, not the parameters' gradients after it"
_OLD = "gradients from before are scaled too: scale the loss, not .grad after backward"
_WAYS: tuple[tuple[str, str, Way], ...] = (
    (
        "LOSS-NOT-SCALED",
        "the gradients of the micro-batches' own mean losses are added up: the losses are not scaled",
        Way(_one),
    ),
    (
        "LAST-WHOLE",
        "each micro-batch weighs 1/m: a row of a small micro-batch counts more than one of a large",
        Way(_equal),
    ),
    (
        "LAST-WHOLE",
        "each loss is scaled by its rows over m times the rows of the first micro-batch, not over the batch's rows",
        Way(lambda rows: [n / (len(rows) * rows[0]) for n in rows]),
    ),
    (
        "LOSS-BY-ROWS",
        "each loss is divided by its rows: it is their mean already",
        Way(lambda rows: [1 / n for n in rows]),
    ),
    (
        "LOSS-BY-ROWS",
        "each loss is divided by the rows of the batch, and not multiplied by its own before",
        Way(lambda rows: [1 / sum(rows)] * len(rows)),
    ),
    (
        "LOSS-BY-ROWS",
        "each loss is multiplied by its rows, and the sum is not divided by those of the batch",
        Way(lambda rows: [float(n) for n in rows]),
    ),
    (
        "SCALED-TWICE",
        "the loss is scaled by its rows and divided by m as well",
        Way(lambda rows: [n / sum(rows) / len(rows) for n in rows]),
    ),
    ("SENT-BACK-UNSCALED", _SENT, Way(_by_rows, _one)),
    ("SENT-BACK-UNSCALED", _SENT, Way(_equal, _one)),
    ("SENT-BACK-UNSCALED", f"{_SENT}. And {_OLD}", Way(_equal, _one, "scaled")),
    ("OLD-GRADIENTS", _OLD, Way(_by_rows, None, "scaled")),
    ("OLD-GRADIENTS", f"each micro-batch weighs 1/m, and {_OLD}", Way(_equal, None, "scaled")),
    ("OLD-GRADIENTS", "gradients from before are lost: nothing may be set to zero here", Way(_by_rows, None, "lost")),
    (
        "LAST-ONLY",
        "only the gradient of the last micro-batch is left: .grad is emptied between them",
        Way(lambda rows: [*[0.0] * (len(rows) - 1), rows[-1] / sum(rows)], _by_rows, "lost"),
    ),
)


def _job(job: dict[str, Any], way: Way) -> dict[str, Any]:
    """The gradients of the parameters, and what is sent back."""
    weights = [w.double().requires_grad_() for w in job["weights"]]
    rows = [len(target) for target in job["targets"]]
    total = [torch.zeros_like(w) for w in weights]
    sent = []
    ways = zip(way.weigh(rows), (way.sent or way.weigh)(rows), strict=True)
    for a, target, (own, back) in zip(job["activations"], job["targets"], ways, strict=True):
        leaf = a.double().requires_grad_()
        *gradients, of_leaf = torch.autograd.grad(_loss(job, weights, leaf, target), [*weights, leaf])
        total = [t + own * one for t, one in zip(total, gradients, strict=True)]
        sent.append((back * of_leaf).float())
    if way.old != "lost":
        scale = 1 / len(rows) if way.old == "scaled" else 1.0
        total = [t if old is None else t + scale * old for t, old in zip(total, job["old"], strict=True)]
    return {"parameters": [t.float() for t in total], "sent back": sent}


def _loss(job: dict[str, Any], weights: Sequence[torch.Tensor], a: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    w, b, v, c = weights
    outputs = torch.tanh(a @ w.T + b) @ v.T + c
    if job["loss"] == "cross_entropy":
        return torch.nn.functional.cross_entropy(outputs.flatten(0, 1), target.flatten())
    loss: torch.Tensor = getattr(torch.nn.functional, job["loss"])(outputs, target.double())
    return loss


def _title(job: dict[str, Any]) -> str:
    rows = [len(target) for target in job["targets"]]
    return f"rows {rows}" + (" and gradients from before" if job["old"][0] is not None else "")


def play(given: Given, way: Way) -> list[dict[str, Any]]:
    return [{_title(job): _job(job, way) for job in i["jobs"]} for i in given]


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    return play(given, RIGHT)


def mistakes(case: Case, given: Given) -> list[Mistake]:
    return [Mistake(f"DTL-VALUE-{code}", text, play(given, way)) for code, text, way in _WAYS]


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    named: list[dict[str, Any]] = []
    for rank, (i, notes) in enumerate(zip(given, got, strict=True)):
        named.append({})
        for job, note in zip(i["jobs"], notes, strict=True):
            if wrong := _form(job, note):
                return Finding(wrong[0], f"{_title(job)}: {wrong[1]}", rank)
            named[rank][_title(job)] = {"parameters": note["gradients"], "sent back": note["sent"]}
    if found := compare(_VALUES, case, given, expected(case, given), named):
        return found
    for rank, (i, notes) in enumerate(zip(given, got, strict=True)):
        for job, note in zip(i["jobs"], notes, strict=True):
            again = {**job, "old": note["gradients"]}
            if found := difference(_job(again, RIGHT)["parameters"], note["twice"], 1e-4, 1e-5, "the sum of both"):
                text = (
                    f"{_title(job)}: the first batch is right, a second one with the same stage is not: {found.text}. "
                )
                text += "Is a hook left on the stage or on a parameter?"
                return Finding("DTL-VALUE-SECOND-BATCH", text, rank)
    return _losses(given[0]["jobs"], [note["loss"] for note in got[0]])


def _form(job: dict[str, Any], note: dict[str, Any]) -> tuple[str, str] | None:
    """What is returned, and the passes."""
    if "returned" in note:
        return "DTL-VALUE-TYPE", f"what is sent back and the loss are asked, a tuple of two; it is {note['returned']}"
    if isinstance(note["sent"], list) and any(one is None for one in note["sent"]):
        text = "None is sent back: activations get a .grad if requires_grad_() comes before the forward pass"
        return "DTL-VALUE-NONE", text
    rows, passes = [len(target) for target in job["targets"]], [(op[0], n) for op, n in note["passes"]]
    forward = [n for op, n in passes if op == "F"]
    if forward != rows:
        text = f"the forward passes are of {forward} rows; there is one for each micro-batch, in order"
        return "DTL-RULE-PASSES", text
    if passes != [(op, n) for n in rows for op in "FB"]:
        order = " ".join(op for op, _ in passes)
        text = (
            f"the passes come in the order {order}: with the backward pass of each micro-batch before the next forward "
        )
        return "DTL-RULE-ONE-LIVE", f"{text}pass, the activations of only one take memory"
    if any(op == "F+" for op, _ in note["passes"]):
        text = "when a forward pass begins, the activations of a micro-batch before are still kept: retain_graph=True "
        return "DTL-RULE-ONE-LIVE", f"{text}keeps them after backward, for as long as the loss is kept as a tensor"
    if any(not torch.equal(w, now) for w, now in zip(job["weights"], note["weights"], strict=True)):
        return "DTL-VALUE-PARAMETERS", "the parameters themselves have changed; only their .grad may"
    return None


_LOSSES: tuple[tuple[str, Callable[[list[float], list[int]], float]], ...] = (
    ("the mean of the micro-batches' losses, in which a row of a small one counts more", lambda x, n: sum(x) / len(x)),
    ("the sum of the micro-batches' losses", lambda x, n: sum(x)),
    ("the loss of the last micro-batch", lambda x, n: x[-1]),
    ("the scaled loss of the last micro-batch", lambda x, n: x[-1] * n[-1] / sum(n)),
    ("the mean of the scaled losses", lambda x, n: sum(a * b for a, b in zip(x, n, strict=True)) / sum(n) / len(n)),
)


def _losses(jobs: list[dict[str, Any]], got: list[Any]) -> Finding | None:
    own = []  # of each job, the losses and rows of its micro-batches
    for job in jobs:
        weights = [w.double() for w in job["weights"]]
        pairs = zip(job["activations"], job["targets"], strict=True)
        own.append(([_loss(job, weights, a.double(), t).item() for a, t in pairs], [len(t) for t in job["targets"]]))
    right = [sum(x * n for x, n in zip(*one, strict=True)) / sum(one[1]) for one in own]
    wrong = [difference(want, have, 1e-4, 1e-5, "the loss") for want, have in zip(right, got, strict=True)]
    if not any(wrong):
        return None
    job, found = next((job, one) for job, one in zip(jobs, wrong, strict=True) if one)
    if found.code != "DTL-VALUE":
        return Finding(found.code, f"{_title(job)}: {found.text}", 0, advice=found.advice)
    text = f"{_title(job)}: the gradients are right; {found.text}"
    for what, made in _LOSSES:
        if not any(difference(made(*one), have, 1e-4, 1e-5) for one, have in zip(own, got, strict=True)):
            return Finding("DTL-VALUE-LOSSES", f"{text}: it is {what}", 0)
    return Finding("DTL-VALUE-LOSSES", text, 0)


def why(case: Case, given: Given, record: Record) -> str:
    return f"{MAY_HELP}activations have no gradient before .requires_grad_(); a parameter's .grad may be None"


_VALUES = Check(on_rank, inputs, expected, mistakes=mistakes, rtol=1e-4, atol=1e-5)
CHECK = Check(on_rank, inputs, None, verify=verify, why=why, rules=[rules.most_messages("0")])
