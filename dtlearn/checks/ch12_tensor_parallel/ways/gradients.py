"""Which gradients of a model are added up over the ranks: the right ones, and those that people take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .groups import Play, group_of

# Of the model that an answer is tried with: the shapes of its parameters. "position" belongs to the model itself, the
# others to modules one or two levels deeper. What has a mark that is False; and what is marked, by job.
SHAPES = {
    "position": (3, 4),
    "norm.weight": (4,),
    "norm.bias": (4,),
    "attention.norm.weight": (2,),
    "attention.norm.bias": (2,),
    "up.weight": (3, 4),
    "up.bias": (3,),
    "blocks.0.down.weight": (4, 3),
    "blocks.0.down.bias": (4,),
    "final_norm.weight": (4,),
}
_NORMS = ("norm.weight", "norm.bias", "attention.norm.weight", "attention.norm.bias", "final_norm.weight")
HAS_FALSE = (*_NORMS[:4], "blocks.0.down.weight", "blocks.0.down.bias")
_USUAL = ["position", "norm.weight", "norm.bias", "blocks.0.down.bias", "final_norm.weight"]
_ROUTER = ["attention.norm.weight", "attention.norm.bias", "up.weight", "up.bias", "final_norm.weight"]
MARKS = (_USUAL, _USUAL, _ROUTER)  # a router of experts, replicated and given a part of the tokens, is such a layer
UNUSED = ("spare_norm.weight", "spare_norm.bias")  # marked as well, and without a gradient
_TIED = "final_norm.weight"  # a second module has it too

Way = Callable[[str, bool], str]  # from a name, and whether it is marked, to "sum", "own", "mean", "twice", ...


def _summed(*names: str) -> Way:
    return lambda name, is_marked: "sum" if name in names else "own"


def _marked(what: str, *but: str) -> Way:
    """All that is marked, but these names."""
    return lambda name, is_marked: what if is_marked and name not in but else "own"


def _all(what: str) -> Way:
    return lambda name, is_marked: what


_BY_KIND = "what is a norm is added up, not what is marked: the gradients of unmarked norms are complete, those of a "
WAYS: tuple[tuple[str, str, Way], ...] = (
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
        "what is a LayerNorm's is added up, not what is marked: the gradients of unmarked norms are complete, those of "
        "marked parameters of other modules are not",
        _summed(*_NORMS[:4]),
    ),
    (
        "COMPLETE-SUMMED",
        "gradients of parameters with sequence_parallel = False are added up too: its value counts",
        lambda name, is_marked: "sum" if is_marked or name in HAS_FALSE else "own",
    ),
    (
        "COMPLETE-SUMMED",
        "all norms and biases, which are all vectors, are added up: those without the mark are complete",
        _summed(*(name for name, shape in SHAPES.items() if len(shape) == 1)),
    ),
    (
        "PARTIAL-GRADIENT",
        "the gradients of what is marked and no norm's are of the rank's own tokens: a norm's or not, the mark counts",
        _marked("sum", *(name for name in SHAPES if name not in _NORMS)),
    ),
    (
        "PARTIAL-GRADIENT",
        "only the marked gradients of LayerNorms are added up: in a norm of another class, a linear layer or elsewhere "
        "the mark counts too",
        _marked("sum", *(name for name in SHAPES if name not in _NORMS[:4])),
    ),
    (
        "PARTIAL-GRADIENT",
        "the gradient of a linear layer's marked bias is still of the rank's own tokens: a norm's or not, the mark "
        "counts",
        _marked("sum", "blocks.0.down.bias", "up.bias"),
    ),
    (
        "PARTIAL-GRADIENT",
        "the gradients of marked matrices are still those of the rank's own tokens: the mark counts, not the shape",
        _marked("sum", *(name for name, shape in SHAPES.items() if len(shape) > 1)),
    ),
    (
        "PARTIAL-GRADIENT",
        "a marked parameter of the model itself, which is in none of its modules, still has the gradient of the rank's "
        "own tokens: model.parameters() has all",
        _marked("sum", "position"),
    ),
    *(
        (
            "PARTIAL-GRADIENT",
            "marked parameters of modules within modules still have the gradients of the rank's own tokens: "
            "model.parameters() has all",
            _marked("sum", *names, *(name for name in SHAPES if name.count(".") > 1)),
        )
        for names in ((), ("position",))
    ),
    (
        "PARTIAL-GRADIENT",
        "the gradients of biases are still those of the rank's own tokens: they are partial as those of weights are",
        _marked("sum", *(name for name in SHAPES if name.endswith("bias"))),
    ),
    (
        "TIED-TWICE",
        "the gradient of a norm that is used in two places is added up twice: it is one parameter",
        lambda name, is_marked: "twice" if name == _TIED else _marked("sum")(name, is_marked),
    ),
    (
        "TWICE",
        "the marked gradients are added up once for each module that they are in: model.modules() has the modules "
        "within modules too, and parameters() of each has all within it. model.parameters() has each parameter once",
        _marked("nested"),
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


def play_of(way: Way) -> Play:
    def play(rank: int, everyone: list[dict[str, Any]]) -> dict[str, Any]:
        members = group_of(rank, everyone[rank], len(everyone))
        made: dict[str, Any] = dict.fromkeys(UNUSED)
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
                "nested": total * len(members) ** (name.count(".") + (name == _TIED)),
                "first": first,
                "largest": parts.amax(0),
            }
            made[name] = values.get(what, total).to(own.dtype)
        return made

    return play
