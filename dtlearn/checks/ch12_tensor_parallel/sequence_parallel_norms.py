"""ch12.sequence_parallel_norms: models with marked and unmarked norms, a marked bias, a norm used twice, one not used.

All gradients differ from rank to rank, so whatever is added up, or is not, shows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from dtlearn.grading import Case, Check, Finding, Given, Stress
from dtlearn.runtime.record.record import Record

from ..rounded import rounded_in_messages
from ..sent import no_silent_rank, no_stores
from . import MAY_HELP
from .ways.groups import GROUPS, Play, by_rank, group_of, named_mistake, with_all

# Of the model of `on_rank`: the shapes of its parameters; what has a mark that is False; and what is marked, in the
# last job something else.
_SHAPES = {
    "norm.weight": (4,),
    "norm.bias": (4,),
    "head_norm.weight": (2,),
    "head_norm.bias": (2,),
    "up.weight": (3, 4),
}
_SHAPES |= {"up.bias": (3,), "down.weight": (4, 3), "down.bias": (4,), "final_norm.weight": (4,)}
_NORMS = ("norm.weight", "norm.bias", "head_norm.weight", "head_norm.bias", "final_norm.weight")
_HAS_FALSE = (*_NORMS[:4], "down.weight", "down.bias")
_USUAL = ["norm.weight", "norm.bias", "down.bias", "final_norm.weight"]
_MARKS = (_USUAL, _USUAL, ["head_norm.weight", "head_norm.bias", "up.bias", "final_norm.weight"])
_UNUSED = ("spare_norm.weight", "spare_norm.bias")  # marked as well, and without a gradient
_TIED = "final_norm.weight"  # a second module has it too
_DTYPES = (("float32", "float64"), ("float64", "float64"), ("float32", "float32"))  # of each job: in general, of norm


def inputs(case: Case) -> Given:
    g, n = case.generator(), case.world_size
    given: Given = [{"jobs": []} for _ in range(n)]
    for (title, groups), (dtype, of_norm), marked in zip(GROUPS[n], _DTYPES, _MARKS, strict=True):
        for rank in range(n):
            gradients = {
                name: torch.randn(shape, generator=g).to(getattr(torch, of_norm if name.startswith("norm") else dtype))
                for name, shape in _SHAPES.items()
            }
            job = {"title": title, "members": [list(one) for one in groups], "gradients": gradients}
            given[rank]["jobs"].append({**job, "dtype": dtype, "of_norm": of_norm, "marked": marked})
    return given


def on_rank(answer: Any, jobs: Any) -> Any:
    notes: Any = []
    nn = torch.nn
    for job in jobs:
        group = None
        for members in job["members"]:
            made = dist.new_group(members)
            group = made if dist.get_rank() in members else group
        model: Any = nn.Module()
        model.norm, model.head_norm = nn.LayerNorm(4), nn.LayerNorm(2)
        model.up, model.down = nn.Linear(4, 3), nn.Linear(3, 4)
        model.final_norm, model.second_use, model.spare_norm = nn.RMSNorm(4), nn.RMSNorm(4), nn.LayerNorm(4)
        model.to(getattr(torch, job["dtype"]))
        model.norm.to(getattr(torch, job["of_norm"]))
        model.second_use.weight = model.final_norm.weight
        parameters: Any = dict(model.named_parameters())
        for name in ("norm.weight", "norm.bias", "head_norm.weight", "head_norm.bias", "down.weight", "down.bias"):
            parameters[name].sequence_parallel = False
        for name in (*job["marked"], "spare_norm.weight", "spare_norm.bias"):
            parameters[name].sequence_parallel = True
        before = {name: parameter.detach().clone() for name, parameter in parameters.items()}
        for name, gradient in job["gradients"].items():
            parameters[name].grad = gradient.clone()
        returned = answer(model, group)
        now = dict(model.named_parameters())
        moved = list(now) != list(before) or any(not torch.equal(now[name], before[name]) for name in before)
        gradients = {name: parameter.grad for name, parameter in parameters.items()}
        notes.append({"gradients": gradients, "moved": moved, "returned": returned is not None})
    return notes


Way = Callable[[str, bool], str]  # from a name, and whether it is marked, to "sum", "own", "mean", "twice", ...


def _summed(*names: str) -> Way:
    return lambda name, is_marked: "sum" if name in names else "own"


def _marked(what: str, *but: str) -> Way:
    """All that is marked, but these names."""
    return lambda name, is_marked: what if is_marked and name not in but else "own"


def _all(what: str) -> Way:
    return lambda name, is_marked: what


_BY_KIND = "what is a norm is added up, not what is marked: the gradients of unmarked norms are complete, those of a "
_WAYS: tuple[tuple[str, str, Way], ...] = (
    ("", "", _marked("sum")),
    (
        "PARTIAL-GRADIENT",
        "the marked gradients are still those of each rank's own tokens: nothing is added up",
        _summed(),
    ),
    ("AVERAGED", "the marked gradients are averaged: each is a part of the sum over all tokens", _marked("mean")),
    (
        "COMPLETE-SUMMED",
        "all gradients are added up: those of divided weights, and of what meets the whole sequence, are complete",
        _all("sum"),
    ),
    (
        "COMPLETE-SUMMED",
        "all gradients are averaged, as in data parallelism: only the marked ones are parts of a sum",
        _all("mean"),
    ),
    ("COMPLETE-SUMMED", f"{_BY_KIND}marked bias of a linear layer are not", _summed(*_NORMS)),
    (
        "COMPLETE-SUMMED",
        f"{_BY_KIND}marked bias of a linear layer are not. And they are averaged",
        lambda name, is_marked: "mean" if name in _NORMS else "own",
    ),
    (
        "COMPLETE-SUMMED",
        "gradients of parameters with sequence_parallel = False are added up too: its value counts",
        lambda name, is_marked: "sum" if is_marked or name in _HAS_FALSE else "own",
    ),
    (
        "COMPLETE-SUMMED",
        "all norms and biases, which are all vectors, are added up: those without the mark are complete",
        _summed(*_NORMS, "up.bias", "down.bias"),
    ),
    (
        "PARTIAL-GRADIENT",
        "the gradient of a linear layer's marked bias is still of the rank's own tokens: a norm's or not, the mark "
        "counts",
        _marked("sum", "down.bias", "up.bias"),
    ),
    (
        "PARTIAL-GRADIENT",
        "the gradients of biases are still those of the rank's own tokens: they are partial as those of weights are",
        _marked("sum", *(name for name in _SHAPES if name.endswith("bias"))),
    ),
    (
        "TIED-TWICE",
        "the gradient of a norm that is used in two places is added up twice: it is one parameter",
        lambda name, is_marked: "twice" if name == _TIED else _marked("sum")(name, is_marked),
    ),
    (
        "COMPLETE-SUMMED",
        "the same names are added up in every model: what is marked differs from one to the next",
        _summed(*_USUAL),
    ),
    ("TWICE", "the marked gradients are added up twice: the second time they are sums already", _marked("twice")),
    ("LARGEST", "the largest of the ranks' values is taken, where their sum is asked", _marked("largest")),
    ("SOURCE", "all ranks have the marked gradients of the first rank of the group, not their sum", _marked("first")),
    (
        "GROUP-IGNORED",
        "all ranks are added up, not those of the group: other groups have other models",
        _marked("world"),
    ),
)


def _play(way: Way) -> Play:
    def play(rank: int, everyone: list[dict[str, Any]]) -> dict[str, Any]:
        members = group_of(rank, everyone[rank], len(everyone))
        made: dict[str, Any] = dict.fromkeys(_UNUSED)
        for name, own in everyone[rank]["gradients"].items():
            what = way(name, name in everyone[rank]["marked"])
            summed = everyone if what == "world" else [everyone[r] for r in members]
            parts = torch.stack([one["gradients"][name].double() for one in summed])
            total = parts.sum(0)
            first = everyone[members[0]]["gradients"][name]
            values = {
                "own": own,
                "mean": total / len(members),
                "twice": total * len(members),
                "first": first,
                "largest": parts.amax(0),
            }
            made[name] = values.get(what, total).to(own.dtype)
        return made

    return play


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    named: list[dict[str, Any]] = [{} for _ in given]
    for rank, (i, notes) in enumerate(zip(given, got, strict=True)):
        for job, note in zip(i["jobs"], notes, strict=True):
            if note["moved"]:
                text = f"{job['title']}: rank {rank} changed a parameter itself; only its .grad may change"
                return Finding("DTL-VALUE-PARAMETERS", text, rank)
            if any(note["gradients"][name] is not None for name in _UNUSED):
                text = (
                    f"{job['title']}: rank {rank} gave a parameter a .grad that had None: the optimizer would leave it "
                )
                return Finding(
                    "DTL-VALUE-GRADIENT-MADE", f"{text}out, and now moves it by weight decay or momentum", rank
                )
            named[rank][job["title"]] = note["gradients"]
    ways = [(code, text, _play(way)) for code, text, way in _WAYS]
    if not (found := named_mistake(_VALUES, case, given, named, ways)):
        return None
    return rounded_in_messages(found, by_rank(given, _play(_WAYS[0][2])), named, record)


def why(case: Case, given: Given, record: Record) -> str:
    text = (
        "a parameter's .grad may be None; most parameters have no attribute sequence_parallel; gradients of one model "
    )
    return f"{MAY_HELP}{text}may have two dtypes"


def _bytes(job: dict[str, Any]) -> int:
    return sum(job["gradients"][name].numel() * job["gradients"][name].element_size() for name in job["marked"])


def _messages(case: Case) -> int:
    """One for each dtype of each model."""
    return sum(len({*dtypes}) for dtypes in _DTYPES)


def _least_calls(case: Case, given: Given) -> int:
    return sum(min(len(g) for g in with_all(job["members"], case.world_size)) > 1 for job in given[0]["jobs"])


def _expected(case: Case, given: Given) -> list[dict[str, Any]]:
    return by_rank(given, _play(_WAYS[0][2]))


_VALUES = Check(on_rank, inputs, _expected, rtol=1e-5, atol=1e-6, stress=Stress(poison=True))
CHECK = Check(
    on_rank,
    inputs,
    None,
    verify=verify,
    why=why,
    calls=_messages,
    payload=lambda case, given: round(sum(map(_bytes, given[0]["jobs"])) / _messages(case)),
    rules=[no_silent_rank(least_calls=_least_calls)],
    reads=[no_stores],
    stress=Stress(poison=True),
)
