"""ch11.split_backward: what each call returns and adds to .grad, how much it computes, and what stays in memory."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F

from dtlearn.grading import Case, Check, Edit, Given, rules
from dtlearn.runtime.record.record import Record

from . import MAY_HELP

ONE, TWO = [3, 2], [3, 4, 5, 2]  # widths
# Per case: `calls`; `widths`; `rows`, the dims of x before the features; `biases`, b for each layer that has one;
# `old`, whether there is a .grad before; `look`, what is compared.
CASES: dict[str, dict[str, Any]] = {
    "one layer without a bias": {"calls": "F0 I0 W0"},
    "a bias": {"calls": "F0 I0 W0", "biases": "b", "says": "the gradient of a bias is the sum of dy over all rows"},
    "a gradient that is there already": {
        "calls": "F0 I0 W0", "biases": "b", "old": True, "says": "W adds to the gradient that .grad holds"},
    "three layers": {
        "calls": "F0 I0 W0", "widths": TWO, "biases": "b-b",
        "says": "there is a ReLU between any two layers: where the input of a layer is 0, it lets no gradient through"},
    "two micro-batches under way": {
        "calls": "F0 F1 I0 I1 W0 W1", "biases": "b",
        "says": "several micro-batches are under way: keep what belongs to each, by its k"},
    "two Ws in another order": {
        "calls": "F0 F1 I0 I1 W1 W0", "biases": "b",
        "says": "W of k takes what belongs to k, in whatever order they come"},
    "a number that comes again": {
        "calls": "F3 I3 W3 F3 I3 W3", "biases": "b",
        "says": "after W of k the same number may come again with another x"},
    "x of three dims": {
        "calls": "F0 I0 W0", "rows": [2, 3], "biases": "b",
        "says": "there may be any number of dims before the features"},
    "x of one dim": {
        "calls": "F0 I0 W0", "rows": [], "biases": "b",
        "says": "there may be no dims before the features: x is then one row, of one dim. x.reshape(-1, x.shape[-1]) "
        "makes a matrix of any x, x.flatten(0, -2) does not"},
    "what I computes": {
        "calls": "F0 F1 I0 F2 I1 W1 W0 I2 W2", "widths": TWO, "biases": "bb-", "look": "I",
        "says": "I does one matrix product for each layer, and so computes no gradient of a weight"},
    "what W computes": {
        "calls": "F0 F1 I0 F2 I1 W1 W0 I2 W2", "widths": TWO, "biases": "bb-", "look": "W",
        "says": "W does one matrix product for each layer: what it needs was there in F and I, so it computes no "
        "gradient of an input, and no forward pass"},
    "memory": {
        "calls": "F0 F1 I0 I1 W1 W0 F2 I2 W2", "widths": TWO, "biases": "bb-", "look": "memory",
        "says": "after W of k the stage holds nothing of k beside .grad; a graph behind .grad holds all that it was "
        "made of: compute under torch.no_grad()"},
}  # fmt: skip
INPUTS, GRADIENTS = (f"self._{name}: dict[Any, list[torch.Tensor]] = {{}}" for name in ("inputs", "gradients"))
NEW, KEEP, OUTPUT = "self._inputs[k] = []", "self._inputs[k].append(x)", "return x\n"
RELU, MASK = "x = x.relu() if place else x\n", "dy = dy * (self._inputs[k][place] > 0) if place else dy"
INSERT, BACKWARD = "self._gradients[k].insert(0, dy)", "for place in reversed(range(len(self.layers))):"
TAKE, TAKE_DY = "self._inputs.pop(k)", "self._gradients.pop(k)"
WEIGHT, BIAS = "add(layer.weight, dy.t() @ x)", "add(layer.bias, dy.sum(0))"
MEAN, MEAN_BIAS = "add(layer.weight, dy.t() @ x / len(x))", "add(layer.bias, dy.mean(0))"
ADD = "gradient if parameter.grad is None else parameter.grad + gradient"
# A dict with one place for all keys.
PLACE = {
    "def add(": "class Place(dict):\n    def __setitem__(self, k, value): super().__setitem__(0, value)\n    def "
    "__getitem__(self, k): return super().__getitem__(0)\n    def pop(self, k): return self[k]\n\n\ndef add("
}
EDITS = (
    Edit("I changes .grad of the weights: their gradients belong into W",
         {INSERT: f"{INSERT}; layer, x = self.layers[place], self._inputs[k][place]\n"
          "                rows = dy.reshape(-1, dy.shape[-1])\n"
          "                add(layer.weight, rows.t() @ x.reshape(-1, x.shape[-1]))\n"
          "                layer.bias is None or add(layer.bias, rows.sum(0))",
          WEIGHT: "continue", BIAS: "pass"}),
    Edit("there is one place for all micro-batches: I and W read what the last F and the last I kept, not their own",
         {INPUTS: "self._inputs = Place()", GRADIENTS: "self._gradients = Place()", **PLACE}),
    Edit("I and W read the inputs that the last F kept, not those of their own k",
         {INPUTS: "self._inputs = Place()", **PLACE}),
    Edit("W reads the gradients that the last I kept, not those of its own k",
         {GRADIENTS: "self._gradients = Place()", **PLACE}),
    Edit("W takes the oldest micro-batch that is under way: which one is meant is said by k",
         {TAKE: "self._inputs.pop(min(self._inputs))", TAKE_DY: "self._gradients.pop(min(self._gradients))"}),
    Edit("W uses the inputs of an earlier micro-batch that had the same number: after W of k they are to be forgotten",
         {NEW: "self._inputs.setdefault(k, [])", TAKE: "self._inputs[k][:len(self.layers)]"}),
    Edit("W writes over .grad: it adds to what is there", {ADD: "gradient"}),
    Edit("the ReLUs are left out of the backward pass: where x was 0, dx is 0", {MASK: "pass"}),
    Edit("a ReLU's mask is taken of the stage's input, too: no ReLU stands before the first layer",
         {MASK: MASK.replace(" if place else dy", "")}),
    Edit("the masks are one layer off: the input of the first layer has none, that of each other layer has one",
         {MASK: MASK.replace("if place", "if place < len(self.layers) - 1")}),
    Edit("the mask of a ReLU is taken of the gradient: where x was 0, dx is 0",
         {MASK: "dy = dy * (dy > 0) if place else dy"}),
    Edit("the input of a layer is kept before the ReLU: the gradient of its weight needs what it was given, after it",
         {RELU: "x, before = x.relu() if place else x, x\n", KEEP: "self._inputs[k].append(before)"}),
    Edit("there is a ReLU after the last layer, too: only between layers",
         {OUTPUT: f"{KEEP}; return x.relu()\n",
          BACKWARD: f"dy *= self._inputs[k][-1] > 0\n            {BACKWARD}",
          TAKE: f"{TAKE}[:-1]"}),
    Edit("there is a ReLU after the last layer in the forward pass: only between layers",
         {OUTPUT: "return x.relu()\n"}),
    Edit("there is no ReLU in the forward pass: one stands between any two layers", {RELU: "pass\n"}),
    Edit("the biases get no gradient: it is the sum of dy over all rows", {BIAS: "pass"}),
    Edit("the gradients of weights and biases are divided by the number of rows",
         {WEIGHT: MEAN, BIAS: MEAN_BIAS}),
    Edit("the gradients of weights are divided by the number of rows", {WEIGHT: MEAN}),
    Edit("the gradient of a bias is the mean of dy over the rows: it is their sum", {BIAS: MEAN_BIAS}),
    Edit("after W the stage still holds what F and I kept of that micro-batch: W forgets it",
         {TAKE: "self._inputs[k]", TAKE_DY: "self._gradients[k]"}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    g, p = case.generator(), case.params
    widths, rows = p.get("widths", ONE), p.get("rows", [4])
    biases = [torch.randn(b, generator=g) if p.get("biases", "-")[n] == "b" else None for n, b in enumerate(widths[1:])]
    count = p["calls"].count("F")
    return [{
        "weights": [torch.randn(b, a, generator=g) for a, b in pairwise(widths)],
        "biases": biases,
        "x": [torch.randn(*rows, widths[0], generator=g) for _ in range(count)],
        "dy": [torch.randn(*rows, widths[-1], generator=g) for _ in range(count)],
        "calls": [[call[0], int(call[1:])] for call in p["calls"].split()],
        "old": "old" in p,
        "look": p.get("look", "values"),
    }]  # fmt: skip


def on_rank(answer: Any, weights: Any, biases: Any, x: Any, dy: Any, calls: Any, old: Any, look: Any) -> Any:
    import gc

    from torch.utils._python_dispatch import TorchDispatchMode

    from dtlearn.grading.on_rank.tools import holds
    from dtlearn.memory.ledger.storage_ledger import StorageLedger

    class Products(TorchDispatchMode):
        flops = 0  # of matrix products, also of those that are made by `*` of larger shapes

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out, name = func(*args, **(kwargs or {})), func.__name__.partition(".")[0].removesuffix("_")
            if name in ("mm", "bmm", "mv", "dot", "addmm", "baddbmm", "addbmm", "addmv"):
                self.flops += 2 * out.numel() * args["add" in name].shape[-1]
            elif name == "mul" and out.numel() > max(t.numel() for t in args if isinstance(t, torch.Tensor)):
                self.flops += 2 * out.numel()
            return out

    def plain(value: Any) -> Any:  # no tensors: they would count as memory
        return value.tolist() if isinstance(value, torch.Tensor) else value

    layers = [torch.nn.Linear(w.shape[1], w.shape[0], bias=b is not None) for w, b in zip(weights, biases, strict=True)]
    named = {f"layer {n}, {kind}": p for n, layer in enumerate(layers) for kind, p in layer.named_parameters()}
    values = [t for pair in zip(weights, biases, strict=True) for t in pair if t is not None]
    for p, value in zip(named.values(), values, strict=True):
        p.data, p.grad = value.clone(), torch.ones_like(value) if old else None
    facts: Any = {"values": {}, "I": {}, "W": {}, "memory": {}}
    last: Any = {}
    numbers = torch.cat([t.flatten() for t in (*x, *dy)])
    enough = 2 * x[0][..., 0].numel() * sum(w.numel() for w in weights)
    with StorageLedger() as ledger:
        stage = answer(layers)
        for at, (op, k) in enumerate(calls, 1):
            call, before = f"call {at}, {op}{k}", {name: plain(p.grad) for name, p in named.items()}
            with Products() as products:
                if op == "W":
                    stage.weight_gradients(k)
                else:
                    last[k] = sum(o == "F" for o, _ in calls[:at]) - 1 if op == "F" else last[k]
                    does, given = (stage.forward, x) if op == "F" else (stage.input_gradient, dy)
                    facts["values"][f"{call} returns"] = plain(does(k, given[last[k]].clone()))
            grads = {name: plain(p.grad) for name, p in named.items()}
            facts["values"][f"{call}: .grad is"] = grads if op == "W" else "as it was" if grads == before else "changed"
            few = "one for each layer" if products.flops <= enough else f"{products.flops} operations, not {enough}"
            facts.get(op, {})[f"{call}: matrix products"] = few
            if op == "W" and at == len(calls):
                gc.collect()
                own = sum(p.grad.nbytes for p in named.values() if p.grad is not None)
                graph = any(p.grad is not None and p.grad.requires_grad for p in named.values())
                facts["memory"] = {
                    ".grad has autograd's graph behind it": graph,
                    "bytes held": max(0, ledger.now - own),
                }
                facts["memory"]["numbers of x or dy are held"] = holds(numbers, numbers[:0], stage, answer)
    return facts[look]


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    """The results of torch's autograd, each micro-batch by itself."""
    own, kept, total = given[0], dict[int, Any](), dict[str, Any]()
    parts = {"weight": own["weights"], "bias": own["biases"]}
    named = {f"layer {n}, {kind}": ts[n].clone().requires_grad_() for n in range(len(own["weights"]))
             for kind, ts in parts.items() if ts[n] is not None}  # fmt: skip
    if own["look"] == "memory":
        nothing = {".grad has autograd's graph behind it": False, "bytes held": 0, "numbers of x or dy are held": False}
        return [nothing]
    if own["look"] != "values":
        calls = [f"call {at}, {op}{k}" for at, (op, k) in enumerate(own["calls"], 1) if op == own["look"]]
        return [{f"{call}: matrix products": "one for each layer" for call in calls}]
    facts, pairs = dict[str, Any](), iter(zip(own["x"], own["dy"], strict=True))
    for at, (op, k) in enumerate(own["calls"], 1):
        call = f"call {at}, {op}{k}"
        if op == "F":
            x, dy = next(pairs)
            leaf = y = x.clone().requires_grad_()
            for n in range(len(own["weights"])):
                y = F.linear(y.relu() if n else y, named[f"layer {n}, weight"], named.get(f"layer {n}, bias"))
            dx, *gradients = torch.autograd.grad(y, [leaf, *named.values()], dy)
            kept[k] = {"F": y.tolist(), "I": dx.tolist(), "W": gradients}
        if op == "W":
            for name, gradient in zip(named, kept[k]["W"], strict=True):
                total[name] = total.get(name, 1.0 if own["old"] else 0.0) + gradient
        else:
            facts[f"{call} returns"] = kept[k][op]
        grads = {name: total[name].tolist() for name in named} if op == "W" else "as it was"
        facts[f"{call}: .grad is"] = grads
    return [facts]


def why(case: Case, given: Given, record: Record) -> str:
    """The hint for a run that raised: what is special about its case."""
    calls = " ".join(f"{op}{k}" for op, k in given[0]["calls"])
    special = case.says or "a layer may have no bias, and .grad may be None"
    return f'{MAY_HELP}this is with "{case.name}", where the calls are {calls}: {special}'


EXAMPLE = {"weights": [torch.tensor([[2.0, 3.0]])], "biases": [None], "x": [torch.tensor([[1.0, 4.0]])]}
CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    example=[
        {
            **EXAMPLE,
            "dy": [torch.tensor([[10.0]])],
            "calls": [["F", 0], ["I", 0], ["W", 0]],
            "old": False,
            "look": "values",
        }
    ],
    why=why,
    rules=[rules.most_messages("0")],
    rtol=1e-4,
    atol=1e-5,
)
