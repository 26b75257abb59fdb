"""ch08.count_a_step: four models of random widths in each case; each number is explained by itself."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import torch

from dtlearn.grading import Case, Check, Given, rules

from ._counts import Counts, verified

# One entry per rank: optimizer, activation, bias, dtype; of the last three, None: it is left out.
_MODELS: dict[str, list[tuple[str, Any, Any, Any]]] = {
    "one rank": [
        ("SGD", None, None, None),
        ("momentum", None, True, None),
        ("Adam", "ReLU", None, "float32"),
        ("Adam", None, None, None),
    ],
    "several ranks": [
        ("Adam", None, None, None),
        ("SGD", "ReLU", True, None),
        ("momentum", "ReLU", None, None),
        ("Adam", None, None, None),
    ],
    "GELU": [
        ("momentum", "GELU", None, None),
        ("Adam", "GELU", None, None),
        ("SGD", "ReLU", None, None),
        ("Adam", "GELU", None, None),
    ],
    "without bias": [(optimizer, "ReLU", False, None) for optimizer in ("Adam", "momentum", "Adam", "SGD")],
    "other dtypes": [
        ("Adam", None, True, "bfloat16"),
        ("momentum", "ReLU", None, "float64"),
        ("Adam", None, None, "float64"),
        ("SGD", "GELU", None, "float16"),
    ],
    "all together": [
        ("Adam", "GELU", False, "float16"),
        ("momentum", "GELU", False, "bfloat16"),
        ("Adam", "ReLU", False, "float64"),
        ("SGD", "GELU", True, "float64"),
    ],
}
_CASES: dict[str, dict[str, Any]] = {
    name: {"models": models, "shared": name in ("several ranks", "all together")} for name, models in _MODELS.items()
}
_OPTIONS = ("activation", "bias", "dtype")
_DEFAULTS = {"activation": "ReLU", "bias": True, "dtype": "float32"}
_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4, "float64": 8}

_ALL_HERE = "under data parallelism every rank has all parameters, their gradients and the optimizer state"
SAYS: dict[str, tuple[str, str]] = {
    "no bias": ("DTL-VALUE-BIASES", "the biases are left out: a layer has one for each of its outputs"),
    "bias per input": ("DTL-VALUE-BIASES", "a bias is counted for each input of a layer: it has one for each output"),
    "no bias by default": ("DTL-VALUE-DEFAULT", "where bias is left out, it is True: biases are counted"),
    "one bias": ("DTL-VALUE-BIASES", "one bias is counted for each layer: it has one for each output"),
    "no bias in the last": ("DTL-VALUE-BIASES", "the last layer has a bias too, like the others"),
    "bias always": ("DTL-VALUE-ARGUMENT-IGNORED", "biases are counted although bias=False"),
    "last layer left out": ("DTL-VALUE-LAYER-LEFT-OUT", "the last layer, which makes the outputs, is left out"),
    "elements": ("DTL-VALUE-ELEMENTS", "this is a number of elements, not of bytes: times dtype.itemsize"),
    "bits": ("DTL-VALUE-ELEMENTS", "this is a number of bits, not of bytes"),
    "float32 state": ("DTL-VALUE-STATE-DTYPE", "the state has 4 bytes per element here: it has the parameter's dtype"),
    "4 bytes": ("DTL-VALUE-ARGUMENT-IGNORED", "an element has 4 bytes here whatever dtype is; dtype.itemsize says it"),
    "all divided": ("DTL-VALUE-SPLIT", f"it is divided by num_ranks; {_ALL_HERE}"),
    "divided": ("DTL-VALUE-SPLIT", f"it is divided by num_ranks; {_ALL_HERE}"),
    "global batch": (
        "DTL-VALUE-GLOBAL-BATCH",
        "these are the activations of the global batch; a rank has its part of the samples",
    ),
    "times ranks": ("DTL-VALUE-ALL-COPIES", "this is what all ranks hold together; asked for is one rank"),
    "one sample": (
        "DTL-VALUE-ONE-SAMPLE",
        "these are the activations of one sample: each sample of the batch has some",
    ),
    "both sides": (
        "DTL-VALUE-NOT-KEPT",
        "what goes into ReLU is counted, or what comes out of it twice: ReLU and the next layer keep one tensor, its "
        "output, and nothing keeps its input",
    ),
    "GELU by default": (
        "DTL-VALUE-DEFAULT",
        "where activation is left out, it is ReLU, and GELU's tensors are counted",
    ),
    "twice": (
        "DTL-VALUE-NOT-KEPT",
        "every tensor is counted twice: gradients of activations live in the backward pass only, and are none of these",
    ),
    "GELU last too": ("DTL-VALUE-OUTPUTS", "GELU is counted after the last layer too: it stands between two layers"),
    "one side": (
        "DTL-VALUE-KEPT-LEFT-OUT",
        "GELU has one tensor for each hidden layer here, as ReLU: GELU keeps its input, and the next layer keeps its "
        "output",
    ),
    "weights": ("DTL-VALUE-WEIGHTS-KEPT", "weights are counted: a layer keeps its weight, which is a parameter"),
    "inputs": ("DTL-VALUE-INPUTS", "the batch's inputs are counted: the first layer keeps them, but they were there"),
    "no outputs": ("DTL-VALUE-OUTPUTS", "the outputs of the last layer are left out: mean squared error keeps them"),
    "outputs twice": (
        "DTL-VALUE-OUTPUTS",
        "the targets are counted, which were there before, or the outputs twice: no activation function follows them",
    ),
    "loss": ("DTL-VALUE-OUTPUTS", "the loss is counted, and nothing keeps it for the backward pass"),
    "no hidden": ("DTL-VALUE-KEPT-LEFT-OUT", "the hidden layers are left out: each layer keeps its input"),
    "no momentum": ("DTL-VALUE-STATE-COPIES", "momentum is a tensor like each parameter, and is left out"),
    "SGD has state": ("DTL-VALUE-STATE-COPIES", "plain SGD keeps nothing, and state is counted for it"),
    "one moment": ("DTL-VALUE-STATE-COPIES", "Adam keeps two tensors like each parameter, and one is counted"),
    "three moments": ("DTL-VALUE-STATE-COPIES", "Adam keeps two tensors like each parameter, and three are counted"),
    "no counters": (
        "DTL-VALUE-STEP-COUNTERS",
        "Adam's numbers of steps are left out: 4 bytes for each parameter tensor",
    ),
    "one counter": (
        "DTL-VALUE-STEP-COUNTERS",
        "one number of steps is counted for the whole model: Adam keeps one for each parameter tensor",
    ),
    "counter per layer": (
        "DTL-VALUE-STEP-COUNTERS",
        "one number of steps is counted for each layer: its bias is a tensor of its own and has another",
    ),
    "counters in dtype": ("DTL-VALUE-STEP-COUNTERS", "Adam's numbers of steps are float32 whatever dtype is: 4 bytes"),
    "counter per element": (
        "DTL-VALUE-STEP-COUNTERS",
        "a number of steps is counted for each element, not each tensor",
    ),
    "counters with momentum": ("DTL-VALUE-STEP-COUNTERS", "only Adam keeps a number of steps; SGD and momentum do not"),
    "none": ("DTL-VALUE-NOTHING", "it is 0 in every case"),
}


def inputs(case: Case) -> Given:
    g = case.generator()
    given: Given = []
    for optimizer, *options in case.params["models"]:
        depth = int(torch.randint(3, 6, (), generator=g))
        # Odd widths, all different: no mistake is hidden by a factor that two of them share.
        widths = (2 * torch.randperm(20, generator=g)[:depth] + 5).tolist()
        if case.params["shared"]:
            widths.insert(1, widths[1])  # two layers of one width are two
        ranks = int(torch.randint(2, 6, (), generator=g)) if case.params["shared"] else 1
        batch = ranks * int(torch.randint(5, 40, (), generator=g))
        chosen = {name: value for name, value in zip(_OPTIONS, options, strict=True) if value is not None}
        given.append({"sizes": [widths, batch, ranks], "options": {"optimizer": optimizer, **chosen}})
    return given[: case.world_size]


def on_rank(answer: Any, sizes: Any, options: Any) -> Any:
    if "dtype" in options:
        options = {**options, "dtype": getattr(torch, options["dtype"])}
    return answer(list(sizes[0]), sizes[1], sizes[2], **options)


def count(i: dict[str, Any], mistakes: frozenset[str] = frozenset()) -> Counts:
    """What one rank holds, with these mistakes of `SAYS`."""
    (widths, batch, ranks), options = i["sizes"], _DEFAULTS | i["options"]
    is_wrong, optimizer, item = mistakes.__contains__, options["optimizer"], _BYTES[options["dtype"]]
    item = 1 if is_wrong("elements") else 4 if is_wrong("4 bytes") else 8 * item if is_wrong("bits") else item
    pairs = list(pairwise(widths))
    pairs = pairs[:-1] if is_wrong("last layer left out") else pairs
    has_bias = (options["bias"] or is_wrong("bias always")) and not is_wrong("no bias")
    has_bias = has_bias and ("bias" in i["options"] or not is_wrong("no bias by default"))
    biases = [1 if is_wrong("one bias") else pair[not is_wrong("bias per input")] for pair in pairs] if has_bias else []
    biases = biases[:-1] if is_wrong("no bias in the last") else biases
    weights = sum(a * b for a, b in pairs)
    elements = weights + sum(biases)
    hidden, outputs = sum(widths[1:-1]), widths[-1]
    is_gelu = options["activation"] == "GELU" or (is_wrong("GELU by default") and "activation" not in i["options"])
    several = (is_wrong("both sides") or is_gelu) and not is_wrong("one side")
    kept = (0 if is_wrong("no hidden") else 1 + several) * hidden
    kept += (
        outputs * (not is_wrong("no outputs")) + outputs * is_wrong("outputs twice") + widths[0] * is_wrong("inputs")
    )
    kept += outputs * (is_wrong("GELU last too") and is_gelu)
    kept *= 2 if is_wrong("twice") else 1
    samples = 1 if is_wrong("one sample") else batch if is_wrong("global batch") else batch // ranks
    state_item = 4 if is_wrong("float32 state") else item
    made = {
        "parameters": elements * item,
        "gradients": elements * item,
        "optimizer state": _copies(optimizer, mistakes) * elements * state_item,
        "activations": (samples * kept + weights * is_wrong("weights") + is_wrong("loss")) * item,
    }
    for name in ("parameters", "gradients", "optimizer state"):
        made[name] //= ranks if is_wrong("divided") else 1
    if optimizer == "Adam" or (is_wrong("counters with momentum") and optimizer == "momentum"):
        tensors = len(pairs) + (len(pairs) if is_wrong("no bias") and options["bias"] else len(biases))
        tensors = len(pairs) if is_wrong("counter per layer") else 1 if is_wrong("one counter") else tensors
        tensors = elements if is_wrong("counter per element") else tensors
        counter = item if is_wrong("counters in dtype") else 4
        made["optimizer state"] += 0 if is_wrong("no counters") else tensors * counter
    for name in made:
        made[name] *= ranks if is_wrong("times ranks") else 1
        made[name] //= ranks if is_wrong("all divided") and name != "activations" else 1
        made[name] *= not is_wrong("none")
    return made


def _copies(optimizer: str, mistakes: frozenset[str]) -> int:
    if optimizer == "Adam":
        return 1 if "one moment" in mistakes else 3 if "three moments" in mistakes else 2
    if optimizer == "momentum":
        return 0 if "no momentum" in mistakes else 1
    return 1 if "SGD has state" in mistakes else 0


def expected(case: Case, given: Given) -> list[Counts]:
    return [count(i) for i in given]


def task_text(case: Case, given: Given, rank: int) -> str:
    (widths, batch, ranks), options = given[rank]["sizes"], given[rank]["options"]
    named = ", ".join(f"{name}={f'torch.{v}' if name == 'dtype' else repr(v)}" for name, v in options.items())
    return f"{widths}, {batch}, {ranks}, {named}"


_VALUES = Check(on_rank, inputs, expected, cases=_CASES, task_text=task_text, rtol=0.0, atol=0.0)
CHECK = replace(_VALUES, expected=None, verify=verified(_VALUES, count, SAYS), rules=[rules.most_messages("0")])
