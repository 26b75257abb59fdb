"""ch08.count_a_step: what a step on one process holds, by the memory ledger, is what an answer has to count."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import nn

from dtlearn.grading import Case, Check, Edit, Given, rules
from dtlearn.memory import MemoryLedger

HERE = "under data parallelism every rank has all parameters, their gradients and the optimizer state"
DEFAULTS: dict[str, Any] = {"activation": "ReLU", "bias": True, "dtype": "float32"}
NAMES = ["parameters", "gradients", "optimizer state", "activations"]
# Per case: `options`, those of the four ranks; `ranks`, num_ranks; `look`, what is compared.
CASES: dict[str, dict[str, Any]] = {
    "parameters and gradients": {"options": [{"optimizer": "SGD"}] * 4, "look": NAMES[:2]},
    "optimizer state": {
        "says": "plain SGD keeps nothing. Momentum is a tensor like each parameter. Adam keeps two, and for each "
        "parameter tensor a number of steps of 4 bytes",
        "options": [{"optimizer": name} for name in ("SGD", "momentum", "Adam", "Adam")],
        "look": NAMES[2:3],
    },
    "activations": {
        "says": "activations are what the forward pass makes and something keeps: the output of each ReLU, once, and "
        "the outputs of the last layer",
        "options": [{"optimizer": "SGD"}] * 4,
        "look": NAMES[3:],
    },
    "several ranks": {
        "says": f"a rank has its part of the samples of the global batch. {HERE[0].upper()}{HERE[1:]}",
        "options": [{"optimizer": "SGD"}, {"optimizer": "Adam"}] * 2,
        "ranks": 3,
    },
    "GELU": {
        "says": "GELU keeps its input, and the next layer keeps GELU's output: two tensors for each hidden layer",
        "options": [{"optimizer": "SGD", "activation": "GELU"}, {"optimizer": "Adam", "activation": "GELU"}] * 2,
    },
    "no bias": {
        "says": "with bias=False a layer has no bias, and Adam no number of steps for one",
        "options": [{"optimizer": "SGD", "bias": False}, {"optimizer": "Adam", "bias": False}] * 2,
    },
    "other dtypes": {
        "says": "all parameters and data have dtype: dtype.itemsize is the bytes of an element. Adam's numbers of "
        "steps are float32 all the same",
        "options": [{"optimizer": "Adam", "dtype": name} for name in ("bfloat16", "float64", "float16", "bfloat16")],
    },
}
ELEMENTS, BIAS = "inputs * outputs + (outputs if bias else 0) for inputs, outputs in pairs", "outputs if bias else 0"
PAIRS, TENSORS = "range(len(widths) - 1)", "len(pairs) * (2 if bias else 1)"
COPIES = '{"SGD": 0, "momentum": 1, "Adam": 2}'
COUNTERS, PER_UNIT = '4 * tensors if optimizer == "Adam" else 0', '2 if activation == "GELU" else 1'
KEPT, BATCH = "kept_per_hidden_unit * sum(widths[1:-1]) + widths[-1]", "global_batch // num_ranks"
PARAMETERS, STATE = "parameters = elements * dtype.itemsize", "copies * parameters + counters"
OF_GRADIENTS = '"gradients": parameters'
BYTES = f"{BATCH} * kept * dtype.itemsize"
ACTIVATIONS = "activations: "
EDITS = (
    Edit("these are numbers of elements, not of bytes: times dtype.itemsize",
         {PARAMETERS: "parameters = elements", BYTES: f"{BATCH} * kept"}),
    Edit("an element has 4 bytes here, whatever dtype is: dtype.itemsize says how many",
         {PARAMETERS: "parameters = elements * 4", BYTES: f"{BATCH} * kept * 4"}),
    Edit("the biases are left out: a layer has one for each of its outputs", {BIAS: "0"}),
    Edit("the biases are left out: a layer has one for each of its outputs", {BIAS: "0", TENSORS: "len(pairs)"}),
    Edit("a bias is counted for each input of a layer: it has one for each output", {BIAS: "inputs if bias else 0"}),
    Edit("one bias is counted for each layer: it has one for each output", {BIAS: "1 if bias else 0"}),
    Edit("biases are counted although bias=False", {BIAS: "outputs", TENSORS: "len(pairs) * 2"}),
    Edit("the last layer has a bias too, like the others", {BIAS: "outputs if bias and outputs != widths[-1] else 0"}),
    Edit("the last layer, which makes the outputs, is left out", {PAIRS: "range(len(widths) - 2)"}),
    Edit("no gradients are counted: each parameter has one, with as many bytes", {OF_GRADIENTS: '"gradients": 0'}),
    Edit("gradients: an element has 4 bytes here, whatever dtype is",
         {OF_GRADIENTS: '"gradients": 4 * elements'}),
    Edit(f"parameters, gradients and state are divided by num_ranks: {HERE}",
         {PARAMETERS: f"{PARAMETERS} // num_ranks"}),
    Edit(f"the optimizer state is divided by num_ranks: {HERE}", {STATE: f"({STATE}) // num_ranks"}),
    Edit("this is what all ranks hold together; asked for is one rank",
         {PARAMETERS: f"{PARAMETERS} * num_ranks", COUNTERS: f"num_ranks * ({COUNTERS})", BATCH: "global_batch"}),
    Edit(f"{ACTIVATIONS}those of the global batch are counted; a rank has its part of the samples",
         {BATCH: "global_batch"}),
    Edit(f"{ACTIVATIONS}those of one sample are counted: each sample of the batch has some", {BATCH: "1"}),
    Edit(f"{ACTIVATIONS}what goes into ReLU is counted, or what comes out of it twice. ReLU and the next layer keep "
         "one tensor, its output, and nothing keeps its input", {PER_UNIT: "2"}),
    Edit(f"{ACTIVATIONS}GELU has one tensor for each hidden layer here, as ReLU: GELU keeps its input, and the next "
         "layer keeps its output", {PER_UNIT: "1"}),
    Edit(f"{ACTIVATIONS}GELU is counted after the last layer too: it stands between two layers",
         {KEPT: "kept_per_hidden_unit * (sum(widths[1:-1]) + widths[-1])"}),
    Edit(f"{ACTIVATIONS}every tensor is counted twice. Gradients of activations live in the backward pass only, and "
         "are none of these", {KEPT: f"2 * ({KEPT})"}),
    Edit(f"{ACTIVATIONS}weights are counted: a layer keeps its weight, which is a parameter",
         {BYTES: f"({BATCH} * kept + sum(i * o for i, o in pairs)) * dtype.itemsize"}),
    Edit(f"{ACTIVATIONS}the batch's inputs are counted: the first layer keeps them, but they were there before",
         {KEPT: f"{KEPT} + widths[0]"}),
    Edit(f"{ACTIVATIONS}the outputs of the last layer are left out: the mean squared error keeps them",
         {KEPT: KEPT.replace(" + widths[-1]", "")}),
    Edit(f"{ACTIVATIONS}the targets are counted, which were there before, or the outputs twice: no activation function "
         "follows them", {KEPT: f"{KEPT} + widths[-1]"}),
    Edit(f"{ACTIVATIONS}the loss is counted, and nothing keeps it for the backward pass",
         {BYTES: f"({BATCH} * kept + 1) * dtype.itemsize"}),
    Edit(f"{ACTIVATIONS}the hidden layers are left out: each layer keeps its input", {KEPT: "widths[-1]"}),
    Edit("momentum is a tensor like each parameter, and is left out", {COPIES: '{"SGD": 0, "momentum": 0, "Adam": 2}'}),
    Edit("plain SGD keeps nothing, and state is counted for it", {COPIES: '{"SGD": 1, "momentum": 1, "Adam": 2}'}),
    Edit("Adam keeps two tensors like each parameter, and one is counted", {COPIES: COPIES.replace("2", "1")}),
    Edit("Adam keeps two tensors like each parameter, and three are counted", {COPIES: COPIES.replace("2", "3")}),
    Edit("the state has 4 bytes per element here: it has the parameter's dtype",
         {STATE: "copies * elements * 4 + counters"}),
    Edit("Adam's numbers of steps are left out: 4 bytes for each parameter tensor", {COUNTERS: "0"}),
    Edit("one number of steps is counted for the whole model: Adam keeps one for each parameter tensor",
         {COUNTERS: '4 if optimizer == "Adam" else 0'}),
    Edit("one number of steps is counted for each layer: its bias is a tensor of its own and has another",
         {TENSORS: "len(pairs)"}),
    Edit("Adam's numbers of steps are float32 whatever dtype is: 4 bytes",
         {COUNTERS: 'dtype.itemsize * tensors if optimizer == "Adam" else 0'}),
    Edit("a number of steps is counted for each element, not for each tensor",
         {COUNTERS: '4 * elements if optimizer == "Adam" else 0'}),
    Edit("only Adam keeps a number of steps; SGD with momentum does not",
         {COUNTERS: '4 * tensors if optimizer != "SGD" else 0'}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    g, ranks, given = case.generator(), case.params.get("ranks", 1), list[dict[str, Any]]()
    for options in case.params["options"][: case.world_size]:
        # Odd widths, all different: no mistake is hidden by a factor that two of them share.
        widths = (2 * torch.randperm(12, generator=g)[:4] + 3).tolist()
        batch = ranks * int(torch.randint(5, 20, (), generator=g))
        given.append({"widths": widths, "global_batch": batch, "num_ranks": ranks, **options})
        given[-1]["look"] = case.params.get("look", NAMES)
    return given


def on_rank(answer: Any, widths: Any, global_batch: int, num_ranks: int, look: Any, **options: Any) -> Any:
    if "dtype" in options:
        options = {**options, "dtype": getattr(torch, options["dtype"])}
    counted = answer(list(widths), global_batch, num_ranks, **options)
    names = "parameters", "gradients", "optimizer state", "activations"
    if isinstance(counted, dict) and {*counted} != {*names}:
        raise ValueError(
            f"asked is a dict of {', '.join(names)}; this one has {', '.join(map(str, counted)) or 'nothing'}"
        )
    return {name: counted[name] for name in look} if isinstance(counted, dict) else counted


def expected(case: Case, given: Given) -> list[dict[str, int]]:
    counted = [step(**{name: value for name, value in own.items() if name != "look"}) for own in given]
    return [{name: one[name] for name in own["look"]} for one, own in zip(counted, given, strict=True)]


def step(widths: list[int], global_batch: int, num_ranks: int, **options: Any) -> dict[str, int]:
    """Return what the ledger counts of a step."""
    options, layers = DEFAULTS | options, list[nn.Module]()
    dtype = getattr(torch, options["dtype"])
    for width_in, width_out in pairwise(widths):
        layers += [nn.Linear(width_in, width_out, options["bias"], dtype=dtype), getattr(nn, options["activation"])()]
    model = nn.Sequential(*layers[:-1])
    momentum = 0.9 if options["optimizer"] == "momentum" else 0.0
    sgd = torch.optim.SGD(model.parameters(), momentum=momentum)
    optimizer = torch.optim.Adam(model.parameters()) if options["optimizer"] == "Adam" else sgd
    x, y = (torch.zeros(global_batch // num_ranks, width, dtype=dtype) for width in (widths[0], widths[-1]))
    with MemoryLedger(model, optimizer, inputs=(x, y)) as ledger:
        with ledger.phase("forward"):
            loss = nn.functional.mse_loss(model(x), y)
        with ledger.phase("backward"):
            loss.backward()
        optimizer.step()
    record = ledger.record()
    ends = dict(zip(("activations", "gradients"), (phase.stop for phase in record.phases), strict=True))
    return {name: record.live(name)[ends.get(name, -1)] for name in NAMES}


def task_text(case: Case, given: Given, rank: int) -> str:
    sizes, options = [*given[rank].values()][:3], [*given[rank].items()][3:-1]
    named = ", ".join(f"{name}={f'torch.{v}' if name == 'dtype' else repr(v)}" for name, v in options)
    return f"{', '.join(map(str, sizes))}, {named}"


CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    example=[{"widths": [4, 3, 2], "global_batch": 8, "num_ranks": 2, "optimizer": "Adam", "look": NAMES}],
    task_text=task_text,
    rules=[rules.most_messages("0")],
    rtol=0.0,
    atol=0.0,
)
