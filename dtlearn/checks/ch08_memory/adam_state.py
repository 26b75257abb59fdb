"""ch08.adam_state: parameters of random sizes, of which some are tied, frozen, in float32 or in no group."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from dtlearn.grading import Case, Check, Given, rules

from ._counts import Counts, verified

# Of each parameter: 16 bits ("b": bfloat16, "h": float16) or float32 ("f"), then any of "frozen", "tied" (a second name
# for the same object), "no group", "twice" (in the groups), "alike" (of the shape
# of the one before).
_MODELS: dict[str, list[str]] = {
    "norms in float32": ["b", "f", "f", "h"],
    "frozen": ["f", "b frozen", "b", "h", "f frozen"],
    "tied": ["b tied", "b alike", "f tied", "f alike", "h"],
    "in no group": ["b", "b no group", "f", "f no group"],
    "all together": [
        *("h tied twice", "b frozen tied", "f frozen no group", "f tied no group", "b frozen no group", "h no group"),
        *("f twice", "b alike"),
    ],
}
_CONVENTIONS = (16, 18, 20, 18)  # of the ranks
_CASES: dict[str, dict[str, Any]] = {name: {"model": model} for name, model in _MODELS.items()}

SAYS: dict[str, tuple[str, str]] = {
    "tied twice": ("DTL-VALUE-TIED-TWICE", "a tied parameter is counted for each of its names: it is one tensor"),
    "group twice": (
        "DTL-VALUE-TIED-TWICE",
        "a parameter that the groups have twice is counted twice: it is one tensor",
    ),
    "tied dropped": ("DTL-VALUE-TIED-DROPPED", "a tied parameter is left out: it counts, once"),
    "frozen weights dropped": (
        "DTL-VALUE-FROZEN-COUNTED",
        "frozen parameters are left out: their weights are in memory too",
    ),
    "frozen gradients": ("DTL-VALUE-FROZEN-COUNTED", "frozen parameters are counted: they have no gradient"),
    "frozen state": (
        "DTL-VALUE-FROZEN-COUNTED",
        "frozen parameters are counted: without a gradient the optimizer keeps nothing of them, also if they are in a "
        "group",
    ),
    "weights of groups": (
        "DTL-VALUE-GROUPS",
        "only parameters in a group are counted: the others are in memory too",
    ),
    "gradients of groups": (
        "DTL-VALUE-GROUPS",
        "only gradients of parameters in a group are counted: autograd makes one for each parameter that requires it",
    ),
    "state of all": ("DTL-VALUE-GROUPS", "parameters in no group are counted: no optimizer keeps anything of them"),
    "no master": (
        "DTL-VALUE-MASTER",
        "8 bytes are counted for an element of a 16-bit parameter: its float32 master is left out, or the moments have "
        "16 bits; master, momentum and variance have 4 each",
    ),
    "master of 2": ("DTL-VALUE-MASTER", "a master has 2 bytes per element here: it is float32"),
    "master for all": (
        "DTL-VALUE-MASTER",
        "float32 parameters have a master here: they need none, as they are float32 themselves",
    ),
    "master is a parameter": ("DTL-VALUE-MASTER-PLACE", "the masters are counted here: they are optimizer state"),
    "one moment": ("DTL-VALUE-STATE-COPIES", "one of Adam's two moments is left out"),
    "convention 16": ("DTL-VALUE-CONVENTION", "this is the convention 16 whatever the argument is: 2 bytes"),
    "convention 18": ("DTL-VALUE-CONVENTION", "this is the convention 18 whatever the argument is: 4 bytes"),
    "convention 20": ("DTL-VALUE-CONVENTION", "this is the convention 20 whatever the argument is: 2 and 4 bytes"),
    "18 and 20 swapped": ("DTL-VALUE-CONVENTION", "18 and 20 are taken for each other"),
    "4 in place of 2 and 4": ("DTL-VALUE-CONVENTION", "with 20 only the float32 copies are counted: both are there"),
    "2 and 4 with 18": (
        "DTL-VALUE-CONVENTION",
        "with 18 gradients of 2 bytes are counted too: there are float32 ones only",
    ),
    "convention for float32": (
        "DTL-VALUE-FLOAT32-PARAMETERS",
        "float32 parameters have gradients as if they had 16 bits; theirs have 4 bytes, and no copy, always",
    ),
    "16-bit weights only": ("DTL-VALUE-FLOAT32-PARAMETERS", "each parameter is counted as one of 16 bits"),
    "float32 dropped": ("DTL-VALUE-FLOAT32-PARAMETERS", "float32 parameters are left out"),
    "4 bytes": ("DTL-VALUE-FLOAT32-PARAMETERS", "each parameter is counted as one of float32"),
    "first group": ("DTL-VALUE-FIRST-GROUP", "only the first group is counted"),
    "float16 dropped": ("DTL-VALUE-HALF", "of 16-bit parameters, float16 ones are not taken for such"),
    "elements": ("DTL-VALUE-ELEMENTS", "this is a number of elements, not of bytes"),
    "all": ("DTL-VALUE-TOTAL", "this is the sum of all three categories"),
}


def inputs(case: Case) -> Given:
    g = case.generator()
    given: Given = []
    for rank in range(case.world_size):
        parameters, groups = list[dict[str, Any]](), [list[int](), list[int]()]
        for k, kind in enumerate(case.params["model"]):
            shape = [2 * int(n) + 3 for n in torch.randint(0, 30, (1 + k % 2,), generator=g)]
            shape = parameters[-1]["shape"] if "alike" in kind else shape
            dtype = {"b": "bfloat16", "h": "float16", "f": "float32"}[kind[0]]
            parameters.append({"shape": shape, "dtype": dtype, "kind": kind})
            if "no group" not in kind:
                groups[k % 2] += [k] * (1 + ("twice" in kind))
        given.append({"parameters": parameters, "groups": groups, "convention": _CONVENTIONS[rank]})
    return given


def on_rank(answer: Any, parameters: Any, groups: Any, convention: Any) -> Any:
    made = []
    for one in parameters:
        tensor = torch.zeros(one["shape"], dtype=getattr(torch, one["dtype"]))
        made.append(torch.nn.Parameter(tensor, requires_grad="frozen" not in one["kind"]))
    tied = [made[k] for k, one in enumerate(parameters) if "tied" in one["kind"]]
    named = [(f"layers.{k}.weight", parameter) for k, parameter in enumerate([*tied[::-1], *made])]  # no name tells
    return answer(named, [{"params": [made[k] for k in group], "lr": 0.1} for group in groups], convention)


def count(i: dict[str, Any], mistakes: frozenset[str] = frozenset()) -> Counts:
    """The bytes of training state, with these mistakes of `SAYS`."""
    is_wrong, convention = mistakes.__contains__, i["convention"]
    per_gradient = {16: 2, 18: 4, 20: 6}
    for name in (16, 18, 20):
        convention = name if is_wrong(f"convention {name}") else convention
    if is_wrong("18 and 20 swapped"):
        per_gradient = {16: 2, 18: 6, 20: 4}
    per_gradient[20] = 4 if is_wrong("4 in place of 2 and 4") else per_gradient[20]
    per_gradient[18] = 6 if is_wrong("2 and 4 with 18") else per_gradient[18]
    made = {"parameters": 0, "gradients": 0, "optimizer state": 0}
    for k, one in enumerate(i["parameters"]):
        kind, elements = one["kind"], torch.Size(one["shape"]).numel()
        in_group = k in i["groups"][0] or (k in i["groups"][1] and not is_wrong("first group"))
        is_half = one["dtype"] == "bfloat16" or (one["dtype"] == "float16" and not is_wrong("float16 dropped"))
        is_half = (is_half or is_wrong("16-bit weights only")) and not is_wrong("4 bytes")
        item = 2 if is_half else 4 if one["dtype"] == "float32" or is_wrong("4 bytes") else 2
        if ("tied" in kind and is_wrong("tied dropped")) or (not is_half and is_wrong("float32 dropped")):
            continue
        times = 2 if "tied" in kind and is_wrong("tied twice") else 1
        times_in_group = 2 if "twice" in kind and is_wrong("group twice") else times
        has_gradient = "frozen" not in kind
        unit = 0 if is_wrong("elements") else 1
        weight, gradient = (
            item * unit or 1,
            (per_gradient[convention] if is_half or is_wrong("convention for float32") else 4),
        )
        master = (
            (4 - 2 * is_wrong("master of 2")) * (is_half or is_wrong("master for all")) * (not is_wrong("no master"))
        )
        moments = 4 * (1 if is_wrong("one moment") else 2)
        trains = (in_group or is_wrong("state of all")) and (has_gradient or is_wrong("frozen state"))
        if (has_gradient or not is_wrong("frozen weights dropped")) and (in_group or not is_wrong("weights of groups")):
            made["parameters"] += times * elements * weight
        if (has_gradient or is_wrong("frozen gradients")) and (in_group or not is_wrong("gradients of groups")):
            made["gradients"] += times * elements * (gradient * unit or 1)
        if trains:
            place = "parameters" if is_wrong("master is a parameter") else "optimizer state"
            made[place] += times_in_group * elements * master * unit
            made["optimizer state"] += times_in_group * elements * (moments * unit or 2 + bool(master))
    return dict.fromkeys(made, sum(made.values())) if is_wrong("all") else made


def expected(case: Case, given: Given) -> list[Counts]:
    return [count(i) for i in given]


def task_text(case: Case, given: Given, rank: int) -> str:
    i = given[rank]
    words = {"b": "16 bits", "h": "16 bits", "f": "float32"}
    kinds = [" ".join([words[one["kind"][0]], *one["kind"].split()[1:]]) for one in i["parameters"]]
    shapes = [one["shape"] for one in i["parameters"]]
    listed = ", ".join(f"{shape} ({kind})" for shape, kind in zip(shapes, kinds, strict=True))
    return f"convention {i['convention']} and parameters of the shapes {listed}"


_VALUES = Check(on_rank, inputs, expected, cases=_CASES, task_text=task_text, rtol=0.0, atol=0.0)
CHECK = replace(_VALUES, expected=None, verify=verified(_VALUES, count, SAYS), rules=[rules.most_messages("0")])
