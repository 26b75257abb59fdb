"""ch10.two_stages: small models of two halves, on pairs of ranks; the whole model trains in the judge.

The first stage is not always on the lower rank of a pair. With four ranks two pairs train at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from dtlearn.grading import Case, Check, Finding, Given, Mistake, Stress, compare, rules
from dtlearn.runtime.record.record import Record

from ..own_work import no_objects
from ..rounded import rounded_in_messages
from ..sent import no_silent_rank, no_stores
from . import MAY_HELP
from ._wrong_trainings import WAYS, Way, build, play, title

_HEADER = 128  # bytes for the shape, of a batch
# Stages as names and arguments in torch.nn; mT is the transpose. Inputs of each batch; classes, if they are tokens.
# Neither the number of batches nor the loss nor the optimizer's arguments are always the same.
_MODELS: dict[str, dict[str, Any]] = {
    "rows": {
        "stages": [[["Linear", 4, 6], ["Tanh"]], [["Linear", 6, 3]]],
        "inputs": [[5, 4], [2, 4], [3, 4]],
        "outputs": [3],
    },
    "tokens": {
        "stages": [[["Embedding", 7, 4]], [["Linear", 4, 5], ["Tanh"], ["Linear", 5, 7]]],
        "inputs": [[2, 3], [1, 5], [2, 3], [4, 2]],
        "loss": "cross_entropy",
        "classes": 7,
    },
    "an output that is not contiguous": {
        "stages": [[["Linear", 3, 4], ["mT"]], [["Tanh"], ["Linear", 2, 2]]],
        "inputs": [[3, 2, 3], [2, 2, 2, 3], [2, 3]],
        "outputs": [4, 2],
    },
    "one dimension": {
        "stages": [[["Linear", 3, 2]], [["Linear", 2, 1]]],
        "inputs": [[3]] * 2,
        "outputs": [1],
        "loss": "smooth_l1_loss",
        "arguments": {"momentum": 0.7, "nesterov": True, "weight_decay": 0.1},
    },
}


def inputs(case: Case) -> Given:
    g, n = case.generator(), case.world_size
    given: Given = [{"jobs": []} for _ in range(n)]
    for k, (name, model) in enumerate(_MODELS.items()):
        pairs = [(k % 2, 1 - k % 2)] if n == 2 else [((0, 3), (3, 1), (2, 0), (1, 2))[k]]
        if n == 4:
            pairs.append(tuple({0, 1, 2, 3} - {*pairs[0]}))  # type: ignore[arg-type]
        for first, last in pairs:
            shared: dict[str, Any] = {"name": name, "loss": model.get("loss", "mse_loss")}
            lr = 0.1 + 0.1 * torch.rand((), generator=g).item()
            shared["arguments"] = {"lr": lr, "momentum": 0.9, **model.get("arguments", {})}
            xs, targets = _data(model, g)
            for rank, other, data, stage in ((first, last, xs, 0), (last, first, targets, 1)):
                spec = model["stages"][stage]
                weights = [0.7 * torch.randn(p.shape, generator=g) for p in build(spec).parameters()]
                own = {"other": other, "is_first": not stage, "batches": data, "spec": spec, "weights": weights}
                given[rank]["jobs"].append(shared | own)
    return given


def _data(model: dict[str, Any], g: torch.Generator) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    if classes := model.get("classes"):
        xs, targets = ([torch.randint(classes, shape, generator=g) for shape in model["inputs"]] for _ in range(2))
        return xs, targets
    kept = 1 if len(model["outputs"]) == 1 else 2  # dimensions at the end that the stages change
    shapes = [[*shape[:-kept], *model["outputs"]] for shape in model["inputs"]]
    return tuple([torch.randn(s, generator=g) for s in sizes] for sizes in (model["inputs"], shapes))  # type: ignore


def on_rank(answer: Any, jobs: Any) -> Any:
    # As in `build`: only the text of this function comes to the ranks.
    class Transpose(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.mT

    def loss_fn(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        if job["loss"] == "cross_entropy":
            outputs, targets = outputs.flatten(0, 1), targets.flatten()
        made: torch.Tensor = getattr(torch.nn.functional, job["loss"])(outputs, targets)
        return made

    notes: Any = []
    for job in jobs:
        parts = [Transpose() if one[0] == "mT" else getattr(torch.nn, one[0])(*one[1:]) for one in job["spec"]]
        stage, calls = torch.nn.Sequential(*parts), [0]
        for p, weight in zip(stage.parameters(), job["weights"], strict=True):
            p.data = weight.clone()
        stage.register_forward_hook(lambda *_, calls=calls: calls.__setitem__(0, calls[0] + 1))
        optimizer = torch.optim.SGD(stage.parameters(), **job["arguments"])
        batches = [one.clone() for one in job["batches"]]
        try:
            losses = answer(stage, optimizer, batches, loss_fn, is_first=job["is_first"], other=job["other"])
        except (RuntimeError, TypeError, ValueError, AttributeError, IndexError) as error:
            if not isinstance(error, NotImplementedError):
                which, text = "first" if job["is_first"] else "last", " ".join(str(error).split()).rstrip(".")
                if "NoneType" in text and "wait" not in text and not job["is_first"]:
                    text = text.replace("'NoneType' object", "None").replace("<class 'NoneType'>", "None")
                    text += "; the .grad of what arrived is None without .requires_grad_() before the forward pass"
                error.args = (f"{text} ({job['name']}, {which} stage, the other on rank {job['other']})",)
            raise
        weights = {name: p.detach().clone() for name, p in stage.named_parameters()}
        notes.append({"losses": losses, "weights": weights, "calls": calls[0]})
    return notes


def expected(case: Case, given: Given) -> Sequence[Any]:
    return play(given, Way())


def mistakes(case: Case, given: Given) -> list[Mistake]:
    right = play(given, Way())
    no_losses = [{t: one | {"losses": []} for t, one in own.items()} for own in right]
    totals = [{t: one | {"losses": sum(one["losses"])} for t, one in own.items()} for own in right]
    return [
        *(Mistake(f"DTL-VALUE-{code}", text, play(given, way)) for code, text, way in WAYS),
        Mistake("DTL-VALUE-LOSSES", "the losses are not returned: a list of floats, one for each batch", no_losses),
        Mistake("DTL-VALUE-LOSSES", "the losses are added up: a list of floats is asked, one for each batch", totals),
    ]


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    named: list[dict[str, Any]] = [{} for _ in given]
    for rank, (i, notes) in enumerate(zip(given, got, strict=True)):
        for job, note in zip(i["jobs"], notes, strict=True):
            if note["calls"] != (batches := len(job["batches"])):
                text = f"{title(job)}: the stage is called {note['calls']} times for {batches} batches"
                return Finding("DTL-RULE-STAGE-CALLS", text, rank)
            if job["is_first"] and note["losses"] != []:
                text = f"{title(job)}: {note['losses']!r} is returned, where nobody knows a loss: [] is asked"
                return Finding("DTL-VALUE-LOSSES", text, rank)
            named[rank][title(job)] = {"losses": note["losses"], "weights": note["weights"]}
    right = expected(case, given)
    found = compare(_VALUES, case, given, right, named)
    return rounded_in_messages(found, right, named, record) if found else None


def _payload(given: Given, extra: int) -> float:
    """Bytes that a rank sends: the outputs, or their gradient, of all batches."""
    total = 0
    for number, job in enumerate(given[0]["jobs"]):
        first = job if job["is_first"] else given[job["other"]]["jobs"][number]
        stage = build(first["spec"])
        total += sum(stage(x).nbytes + extra for x in first["batches"])
    return total


def why(case: Case, given: Given, record: Record) -> str:
    """Of a run that raised, or whose calls do not fit together."""
    text = f"{MAY_HELP}each batch's outputs may have another shape and number of dimensions; the first stage is on the "
    return f"{text}higher rank of some pairs"


_VALUES = Check(on_rank, inputs, expected, mistakes=mistakes, rtol=1e-4, atol=1e-5, stress=Stress(poison=True))
CHECK = Check(
    on_rank,
    inputs,
    None,
    verify=verify,
    why=why,
    rules=[
        rules.only("send", "recv", "isend", "irecv", why="Each message goes to the rank with the other stage."),
        no_silent_rank(least_bytes=lambda case, given: _payload(given, 0)),
        rules.most_bytes(lambda case, given: _payload(given, _HEADER)),
    ],
    reads=[no_stores, no_objects],
    stress=Stress(poison=True),
)
