"""ch03.average_gradients: all gradients, frozen parameters, and parts that some ranks, or all, did not use."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from dtlearn.grading import Case, Check, Finding, Given, Mistake, compare, difference
from dtlearn.runtime.record.record import Record
from dtlearn.runtime.words import ordinal, ranks_text

from ..rounded import rounded

Gradients = dict[str, torch.Tensor | None]

# Two branches of equal shapes: an all-reduce that pairs one with the other goes unnoticed.
_SHAPES = {
    "first.weight": (3, 4),
    "left.weight": (3, 3),
    "left.bias": (3,),
    "right.weight": (3, 3),
    "right.bias": (3,),
    "last.weight": (2, 3),
}


def _unused_on_rank_0(rank: int) -> list[str]:
    return ["left"] if rank == 0 else []


def _one_part_each(rank: int) -> list[str]:
    return ["left"] if rank % 2 else ["right"]


# frozen: parts whose parameters need no gradient. unused: by rank, parts without a gradient. zero: parts whose gradient
# is there, and zero, as behind a ReLU that no sample passes.
_CASES: dict[str, dict[str, Any]] = {
    "every gradient is there": {},
    "first is frozen": {"frozen": ["first"]},
    "right is None on every rank, and not frozen": {"unused": lambda rank: ["right"]},
    "left is None on rank 0": {"unused": _unused_on_rank_0},
    "left is None on odd ranks, right on even ones": {"unused": _one_part_each},
    "right is zero on every rank": {"zero": ["right"]},
}


def inputs(case: Case) -> Given:
    g, given = case.generator(), []
    frozen, unused = case.params.get("frozen", []), case.params.get("unused", lambda rank: [])
    for rank in range(case.world_size):
        gradients: Gradients = {}
        for name, shape in _SHAPES.items():
            missing = name.split(".")[0] in (*frozen, *unused(rank))
            gradient = torch.randn(shape, generator=g) + rank + 1
            zero = name.split(".")[0] in case.params.get("zero", ())
            gradients[name] = None if missing else torch.zeros(shape) if zero else gradient
        # Other parameters on every rank, so that it shows if they are averaged in place of the gradients.
        parameters = {name: torch.randn(shape, generator=g) for name, shape in _SHAPES.items()}
        given.append({"gradients": gradients, "parameters": parameters, "frozen": frozen})
    return given


def on_rank(answer: Any, gradients: Any, parameters: Any, frozen: Any) -> Any:
    layer = torch.nn.Linear
    parts = {"first": layer(4, 3, bias=False), "left": layer(3, 3), "right": layer(3, 3), "last": layer(3, 2, False)}
    model = torch.nn.ModuleDict(parts)
    model.load_state_dict(parameters)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name.split(".")[0] not in frozen)
        parameter.grad = gradients[name]
    answer(model)
    return {
        "gradients": {name: parameter.grad for name, parameter in model.named_parameters()},
        "parameters": {name: parameter.detach() for name, parameter in model.named_parameters()},
    }


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    return _after(given, {name: _mean(given, name, case.world_size) for name in _SHAPES})


def _after(given: Given, gradients: Gradients) -> list[dict[str, Any]]:
    """The same gradients on every rank, and its own parameters."""
    return [{"gradients": gradients, "parameters": i["parameters"]} for i in given]


def _mean(given: Given, name: str, divisor: float) -> torch.Tensor | None:
    """The sum of the gradients that there are, divided; None if there are none."""
    there = [i["gradients"][name] for i in given if i["gradients"][name] is not None]
    return (torch.stack(there).double().sum(0) / divisor).float() if there else None


def mistakes(case: Case, given: Given) -> list[Mistake]:
    n = case.world_size
    means = {name: _mean(given, name, n) for name in _SHAPES}
    found: list[Mistake] = []

    def add(code: str, text: str, gradients: Gradients) -> None:
        found.append(Mistake(code, text, _after(given, gradients)))

    def divided(divisor: Callable[[str], float]) -> Gradients:
        return {name: _mean(given, name, divisor(name)) for name in _SHAPES}

    if n > 1:
        add("DTL-VALUE-FACTOR", f"the sum over the ranks, {n} times the mean: divide it by {n}", divided(lambda _: 1))
        text = f"averaged twice: the sum is divided by {n} * {n}, so the gradients are 1/{n} of the mean"
        add("DTL-VALUE-FACTOR", text, divided(lambda _: n * n))
    if n != 2:
        text = f"the sum is divided by 2, and there {'are' if n > 1 else 'is'} {n} rank{'s' * (n > 1)}"
        add("DTL-VALUE-HARD-CODED", f"{text}: ask dist.get_world_size()", divided(lambda _: 2))
    floored = {name: mean if mean is None else mean.floor() for name, mean in means.items()}
    add("DTL-VALUE-FLOOR", "the mean is rounded down to whole numbers: `//` does that; divide with `/`", floored)
    for source in range(n):
        text = f"all ranks have the gradients of rank {source}: that is a broadcast, and no data of the others counts"
        add("DTL-VALUE-SOURCE", text, given[source]["gradients"])
    if early := _read_too_early(given, means):
        text = (
            "the gradients are read where the numbers of users stand: they begin after these in the flat tensor, and "
        )
        add("DTL-VALUE-OFFSET", f"{text}are all taken as many places too early", early)
    found += _missing_gradients(case, given, means)
    averaged = {name: torch.stack([i["parameters"][name] for i in given]).mean(0) for name in _SHAPES}
    for gradients, text in (
        ([i["gradients"] for i in given], "the parameters were averaged, and every rank still has its own gradients"),
        ([means] * n, "the gradients are right, but the parameters were averaged as well; they must stay as they are"),
    ):
        values = [{"gradients": g, "parameters": averaged} for g in gradients]
        found.append(Mistake("DTL-VALUE-PARAMETERS", text, values))
    text = "every rank still has its own gradients: the mean is in no parameter's `.grad`"
    kept = [{"gradients": i["gradients"], "parameters": i["parameters"]} for i in given]
    found.append(Mistake("DTL-VALUE-STALE", text, kept))
    return found


def _missing_gradients(case: Case, given: Given, means: Gradients) -> list[Mistake]:
    """Wrong where some gradients are None."""
    n = case.world_size
    has = {name: [r for r, i in enumerate(given) if i["gradients"][name] is not None] for name in _SHAPES}
    found: list[Mistake] = []
    nobody = next((name for name in _SHAPES if not has[name]), None)
    if nobody is not None:
        zeros: Gradients = {name: torch.zeros(s) if means[name] is None else means[name] for name, s in _SHAPES.items()}
        why = "frozen" if case.params.get("frozen") else "not frozen, but used by no rank"
        text = f"{nobody} is {why}: its gradient is None on every rank and must stay None; it became zeros, by which "
        text += "an optimizer with momentum or weight decay moves it"
        found.append(Mistake("DTL-VALUE-ZEROED", text, _after(given, zeros)))
    some = next((name for name in _SHAPES if 0 < len(has[name]) < n), None)
    if some is None:
        return found
    users = {name: _mean(given, name, max(1, len(has[name]))) for name in _SHAPES}
    text = f"{some} is averaged over the {len(has[some])} rank{'s' * (len(has[some]) > 1)} that used it: a missing "
    text += f"gradient counts as zero, and the sum is divided by {n}"
    if len(has[some]) > 1:  # divided by one user is not divided at all
        found.append(Mistake("DTL-VALUE-USERS", text, _after(given, users)))
    whole = [{name: m if m is None or r in has[name] else m * n for name, m in means.items()} for r in range(n)]
    without = next(r for r in range(n) if r not in has[some])
    text = f"rank {without}, which had None for {some}, has the sum there, {n} times the mean: this rank too has to "
    text += f"divide by {n}"
    found.append(Mistake("DTL-VALUE-FACTOR", text, _with(given, whole)))
    left = [{name: None if r not in has[name] else mean for name, mean in means.items()} for r in range(n)]
    text = f"rank {without} still has None for {some}, which other ranks have the mean of: its optimizer skips it, and "
    text += "the models drift apart"
    found.append(Mistake("DTL-VALUE-KEPT-NONE", text, _with(given, left)))
    if paired := _paired_by_order(given):
        text = "gradients of different parameters were added up: each rank calls all_reduce for the gradients that it "
        text += f"has, so rank 0's {paired[1]} met rank 1's {paired[2]}; nothing hangs, because the shapes are equal"
        found.append(Mistake("DTL-VALUE-MISPAIRED", text, _with(given, paired[0])))
    return found


def _with(given: Given, gradients: list[Gradients]) -> list[dict[str, Any]]:
    return [{"gradients": own, "parameters": i["parameters"]} for own, i in zip(gradients, given, strict=True)]


def _paired_by_order(given: Given) -> tuple[list[Gradients], str, str] | None:
    """The k-th gradient of each rank averaged with the k-th of the others, and the first pair of names; None where
    the shapes do not fit."""
    lists = [[name for name in _SHAPES if i["gradients"][name] is not None] for i in given]
    made: list[Gradients] = [dict.fromkeys(_SHAPES) for _ in given]
    if len({tuple(_SHAPES[name] for name in names) for names in lists}) > 1:
        return None
    for names in zip(*lists, strict=True):
        mean = torch.stack([i["gradients"][name] for i, name in zip(given, names, strict=True)]).mean(0)
        for own, name in zip(made, names, strict=True):
            own[name] = mean
    pair = next(((a, b) for a, b, *_ in zip(*lists, strict=True) if a != b), None) if len(given) > 1 else None
    return (made, *pair) if pair else None


def _read_too_early(given: Given, means: Gradients) -> Gradients | None:
    """The means of a flat tensor that begins with the number of users of each parameter, read from its start on."""
    if any(i["gradients"][name] is None for i in given for name in _SHAPES):
        return None
    flat = torch.cat([torch.ones(len(_SHAPES)), *(mean.flatten() for mean in means.values() if mean is not None)])
    sizes = [math.prod(shape) for shape in _SHAPES.values()]
    parts = flat[: sum(sizes)].split(sizes)
    return {name: part.view(shape) for (name, shape), part in zip(_SHAPES.items(), parts, strict=True)}


def payload(case: Case, given: Given) -> int:
    """Everything that may need a gradient, and for each parameter a number that says whether it has one."""
    frozen = case.params.get("frozen", [])
    numel = sum(given[0]["parameters"][name].numel() for name in _SHAPES if name.split(".")[0] not in frozen)
    return 4 * int(numel) + 8 * len(_SHAPES)


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    """Compares; where the values alone say nothing, by what should not have changed, and by what is missing."""
    right = expected(case, given)
    found = compare(_VALUES, case, given, right, got)
    if found is None or found.code not in ("DTL-VALUE", "DTL-VALUE-NONE", "DTL-VALUE-ONE-RANK"):
        return found
    for rank, (one, wanted) in enumerate(zip(got, right, strict=True)):
        for name, parameter in wanted["parameters"].items():
            if difference(parameter, one["parameters"][name], _VALUES.rtol, _VALUES.atol):
                text = (
                    f"rank {rank} changed the parameter {name} itself: only its `.grad` is replaced, and the optimizer "
                )
                return Finding("DTL-VALUE-PARAMETERS", f"{text}steps later", rank)
        for name, gradient in wanted["gradients"].items():
            if gradient is not None and one["gradients"][name] is None:
                text = f"rank {rank} ends with None for {name}{_elsewhere(given, got, name, gradient)}"
                if not gradient.any():
                    text = f"rank {rank} ends with None for {name}, although every rank has a gradient: it is zero, "
                    text += "and a gradient of zero stays; only where no rank has one is it None"
                return Finding("DTL-VALUE-KEPT-NONE", text, rank)
    return rounded(found, right, got)


def _elsewhere(given: Given, got: list[Any], name: str, mean: torch.Tensor) -> str:
    """What the ranks have of a gradient that one of them ends without; a clause."""
    has = [r for r, i in enumerate(given) if i["gradients"][name] is not None]

    def where(wanted: list[Any]) -> list[int]:
        pairs = enumerate(zip(wanted, got, strict=True))
        return [r for r, (w, one) in pairs if not difference(w, one["gradients"][name], _VALUES.rtol, _VALUES.atol)]

    if means := where([mean] * len(given)):
        return f", and {ranks_text(means)} {'holds' if len(means) == 1 else 'hold'} the mean: it belongs on every rank"
    if where([i["gradients"][name] for i in given]) != list(range(len(given))):
        return ", although some rank has a gradient: the mean is missing"
    without = next(r for r in range(len(given)) if r not in has)
    text = f": it was averaged on no rank, and {ranks_text(has)} still {'has its' if len(has) == 1 else 'have their'} "
    text += f"own gradient. Rank {without} had none, but a parameter counts if ANY rank has a gradient for it (sum or "
    return f"{text}max of the flags), not only if rank {without} or every rank has one"


def why(case: Case, given: Given, record: Record) -> str:
    """Of calls that do not fit together: the first two gradients that do not, where each rank hands in those that it
    has; "" if it is something else."""
    names = [[name for name in _SHAPES if i["gradients"][name] is not None] for i in given]
    for rank, own in enumerate(names):
        calls = [e.shape for e in record.select(rank=rank, op="all_reduce") if e.shape in _SHAPES.values()]
        if calls != [_SHAPES[name] for name in own][: len(calls)]:
            return ""
    for rank, own in enumerate(names):
        for k, (a, b) in enumerate(zip(names[0], own, strict=False)):
            if a != b:
                return (
                    f"each rank averages those gradients that it has, and they meet by position: the {ordinal(k + 1)} "
                    f"of rank 0 is {a}, of rank {rank} {b}"
                )
    return ""


_VALUES = Check(on_rank, inputs, expected, cases=_CASES, mistakes=mistakes, payload=payload, may_change_inputs=True)
CHECK = replace(_VALUES, expected=None, verify=verify, why=why)
