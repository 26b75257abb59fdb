"""ch08.adam_state: parameters of random sizes, of which some are tied, frozen, in float32 or in no group."""

from __future__ import annotations

import math
from typing import Any

import torch

from dtlearn.grading import Case, Check, Edit, Given, rules
from dtlearn.runtime.record.record import Record

# Per parameter: 16 bits ("b": bfloat16, "h": float16) or float32 ("f"), then any of "frozen", "tied" (a second name
# for the same object), "no group", "twice" (in the groups). `look`: what is compared.
CASES: dict[str, dict[str, Any]] = {
    "weights": {"model": ["b", "f", "f", "h"], "look": ["parameters"]},
    "gradients": {
        "says": "a 16-bit parameter has a gradient of 2 bytes with convention 16, of 4 with 18, of 2 and 4 with 20; a "
        "float32 parameter one of 4, always",
        "model": ["b", "f", "f", "h"],
        "look": ["gradients"],
    },
    "optimizer state": {
        "says": "Adam's momentum and variance have 4 bytes each; a 16-bit parameter has a float32 master of 4, too",
        "model": ["b", "f", "f", "h"],
        "look": ["optimizer state"],
    },
    "frozen parameters": {
        "says": "a frozen parameter has its weight in memory, no gradient, and no state, also if it is in a group",
        "model": ["f", "b frozen", "b", "h", "f frozen"],
    },
    "parameters in no group": {
        "says": "a parameter in no group has its weight in memory, and a gradient if it requires one, but no state",
        "model": ["b", "b no group", "f", "f no group"],
    },
    "tied parameters": {
        "says": "a parameter with two names is one parameter: it is the same object. Another one may look like it",
        "model": ["b tied", "b alike", "b alike", "f tied", "f alike", "f alike"],
    },
    "parameters twice in the groups": {
        "says": "a parameter that comes twice in the groups is one parameter",
        "model": ["b twice", "f", "f twice"],
    },
}
NAMES = ["parameters", "gradients", "optimizer state"]
EACH = "{id(parameter): parameter for _, parameter in named_parameters}.values()"
HALF, WEIGHTS = "is_half = parameter.element_size() == 2", "weights += parameter.numel() * parameter.element_size()"
TRAINED, TABLE = "if not parameter.requires_grad:", "{16: 2, 18: 4, 20: 2 + 4}[convention]"
PER, GRADIENTS = f"{TABLE} if is_half else 4", "gradients += parameter.numel() * per_gradient"
GROUPED, MASTER = "if id(parameter) in in_groups:", "master = 4 if is_half else 0"
STATE = "state += parameter.numel() * (master + 4 + 4)"
EDITS = (
    Edit("these are numbers of elements, not of bytes",
         {WEIGHTS: "weights += parameter.numel()", GRADIENTS: "gradients += parameter.numel()"}),
    Edit("each parameter is counted as one of 16 bits",
         {HALF: "is_half = True", WEIGHTS: "weights += parameter.numel() * 2"}),
    Edit("each parameter is counted as one of float32",
         {HALF: "is_half = False", WEIGHTS: "weights += parameter.numel() * 4"}),
    Edit("float32 parameters are left out", {WEIGHTS: f"{WEIGHTS} * is_half", GRADIENTS: f"{GRADIENTS} * is_half",
                                             STATE: f"{STATE} * is_half"}),
    Edit("float16 has 16 bits like bfloat16, and is not taken for such",
         {HALF: "is_half = parameter.dtype == torch.bfloat16"}),
    Edit("parameters: the masters are counted here; they are optimizer state",
         {MASTER: "master = 0; weights += parameter.numel() * 4 * is_half"}),
    *(Edit(f"gradients: this is the convention {n} whatever the argument is", {TABLE: f"{TABLE[:-12]}[{n}]"})
      for n in (16, 18, 20)),
    Edit("gradients: 18 and 20 are taken for each other", {TABLE: "{16: 2, 18: 6, 20: 4}[convention]"}),
    Edit("gradients: with 20 only the float32 copies are counted; both are there",
         {TABLE: "{16: 2, 18: 4, 20: 4}[convention]"}),
    Edit("gradients: with 18 those of 2 bytes are counted too; there are float32 ones only",
         {TABLE: "{16: 2, 18: 6, 20: 6}[convention]"}),
    Edit("gradients: float32 parameters have gradients as if they had 16 bits; theirs have 4 bytes, and no copy, "
         "always",
         {PER: TABLE}),
    Edit("optimizer state: 8 bytes are counted for an element of a 16-bit parameter. Its float32 master is left out, "
         "or the "
         "moments have 16 bits; master, momentum and variance have 4 each", {MASTER: "master = 0"}),
    Edit("optimizer state: a master has 2 bytes per element here; it is float32",
         {MASTER: "master = 2 if is_half else 0"}),
    Edit("optimizer state: float32 parameters have a master here; they need none, as they are float32 themselves",
         {MASTER: "master = 4"}),
    Edit("optimizer state: one of Adam's two moments is left out", {STATE: STATE.replace("+ 4 + 4", "+ 4")}),
    Edit("optimizer state: only the first group is counted",
         {"for group in groups for": "for group in groups[:1] for"}),
    Edit("parameters: frozen ones are left out; their weights are in memory too",
         {WEIGHTS: f"{WEIGHTS} * parameter.requires_grad"}),
    Edit("frozen parameters have no gradient, and nothing in the optimizer state, also if they are in a group: both "
         "are counted", {TRAINED: "if False:"}),
    Edit("gradients: those of frozen parameters are counted; they have none",
         {TRAINED: "if False:",
          GRADIENTS: f"{GRADIENTS}\n        if not parameter.requires_grad:\n            continue"}),
    Edit("optimizer state: frozen parameters are counted; without a gradient the optimizer keeps nothing of them, "
         "also if "
         "they are in a group", {TRAINED: "if False:", GRADIENTS: f"{GRADIENTS} * parameter.requires_grad"}),
    Edit("parameters: only those in a group are counted; the others are in memory too",
         {WEIGHTS: f"{WEIGHTS} * (id(parameter) in in_groups)"}),
    Edit("gradients: only those of parameters in a group are counted; autograd makes one for each parameter that "
         "requires "
         "it", {GRADIENTS: f"{GRADIENTS} * (id(parameter) in in_groups)"}),
    Edit("optimizer state: parameters in no group are counted; no optimizer keeps anything of them",
         {GROUPED: "if True:"}),
    Edit("a tied parameter is counted for each of its names: it is one tensor",
         {EACH: "[parameter for _, parameter in named_parameters]"}),
    Edit("a tied parameter is left out: it counts, once",
         {EACH: "[p for _, p in named_parameters if sum(p is q for _, q in named_parameters) == 1]"}),
    Edit("two parameters of the same shape are taken for one: they are two objects",
         {EACH: "{(parameter.shape, parameter.dtype): parameter for _, parameter in named_parameters}.values()"}),
    Edit("a parameter that the groups have twice is counted twice: it is one tensor",
         {STATE: f'{STATE} * sum(parameter is p for group in groups for p in group["params"])'}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    g, given = case.generator(), list[dict[str, Any]]()
    for convention in (16, 18, 20, 18)[: case.world_size]:
        parameters, groups = list[dict[str, Any]](), [list[int](), list[int]()]
        for k, kind in enumerate(case.params["model"]):
            shape = [2 * int(n) + 3 for n in torch.randint(0, 12, (1 + k % 2,), generator=g)]
            shape = parameters[-1]["shape"] if "alike" in kind else shape
            dtype = {"b": "bfloat16", "h": "float16", "f": "float32"}[kind[0]]
            parameters.append({"shape": shape, "dtype": dtype, "kind": kind})
            if "no group" not in kind:
                groups[k % 2] += [k] * (1 + ("twice" in kind))
        look = case.params.get("look", NAMES)
        given.append({"parameters": parameters, "groups": groups, "convention": convention, "look": look})
    return given


def on_rank(answer: Any, parameters: Any, groups: Any, convention: int, look: Any) -> Any:
    made = []
    for one in parameters:
        tensor = torch.zeros(one["shape"], dtype=getattr(torch, one["dtype"]))
        made.append(torch.nn.Parameter(tensor, requires_grad="frozen" not in one["kind"]))
    tied = [made[k] for k, one in enumerate(parameters) if "tied" in one["kind"]]
    named = [(f"layers.{k}.weight", parameter) for k, parameter in enumerate([*tied[::-1], *made])]  # no name tells
    counted = answer(named, [{"params": [made[k] for k in group], "lr": 0.1} for group in groups], convention)
    names = "parameters", "gradients", "optimizer state"
    if isinstance(counted, dict) and {*counted} != {*names}:
        raise ValueError(
            f"asked is a dict of {', '.join(names)}; this one has {', '.join(map(str, counted)) or 'nothing'}"
        )
    return {name: counted[name] for name in look} if isinstance(counted, dict) else counted


def expected(case: Case, given: Given) -> list[dict[str, int]]:
    """The table of the task, for one parameter after the other."""
    results = []
    for own in given:
        made = dict.fromkeys(NAMES, 0)
        for k, one in enumerate(own["parameters"]):
            elements, is_half = math.prod(one["shape"]), one["dtype"] != "float32"
            made["parameters"] += elements * (2 if is_half else 4)
            if "frozen" not in one["kind"]:
                made["gradients"] += elements * ({16: 2, 18: 4, 20: 6}[own["convention"]] if is_half else 4)
                made["optimizer state"] += (
                    elements * (12 if is_half else 8) * any(k in group for group in own["groups"])
                )
        results.append({name: made[name] for name in own["look"]})
    return results


def task_text(case: Case, given: Given, rank: int) -> str:
    words = {"b": "16 bits", "h": "16 bits", "f": "float32"}
    listed = [
        f"{one['shape']} ({' '.join([words[one['kind'][0]], *one['kind'].split()[1:]])})"
        for one in given[rank]["parameters"]
    ]
    return f"convention {given[rank]['convention']} and parameters of the shapes {', '.join(listed)}"


def why(case: Case, given: Given, record: Record) -> str:
    """The hint for a run that raised."""
    return "`parameter in a_list` and == compare the elements of tensors; `is`, or id(parameter), tells which one it is"


EXAMPLE = [{"shape": [100], "dtype": "bfloat16", "kind": "b"}, {"shape": [10], "dtype": "bfloat16", "kind": "b frozen"},
           {"shape": [5], "dtype": "float32", "kind": "f no group"}]  # fmt: skip
CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    example=[{"parameters": EXAMPLE, "groups": [[0, 1], []], "convention": n, "look": NAMES} for n in (16, 18, 20)],
    task_text=task_text,
    why=why,
    rules=[rules.most_messages("0")],
    rtol=0.0,
    atol=0.0,
)
