"""ch11.split_backward: several stages, each with calls for several micro-batches mixed; what each call returned, how
many floating-point operations its matrix products took, and what was held when no micro-batch was under way.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import torch

from dtlearn.grading import Case, Check, Finding, Given, difference, rules
from dtlearn.runtime.record.record import Record

from . import MAY_HELP
from ._jobs import Job, numbers
from ._split_mistakes import MISTAKES

Results = list[dict[str, Any]]
_MIXED = "F0 F1 I0 F2 I1 W1 W0 F3 I3 I2 W2 F0 W3 I0 W0"


def inputs(case: Case) -> Given:
    g = case.generator()
    number = numbers(g)

    def job(widths: list[int], rows: list[int], calls: str, biases: str, old: bool) -> Job:
        pairs = list(pairwise(widths))
        count = calls.count("F")
        return {
            "weights": [torch.randn(b, a, generator=g) / 2 for a, b in pairs],
            "biases": [
                torch.randn(b, generator=g) if has == "b" else None for (_, b), has in zip(pairs, biases, strict=True)
            ],
            "x": [torch.randn(*rows, widths[0], generator=g) for _ in range(count)],
            "dy": [torch.randn(*rows, widths[-1], generator=g) for _ in range(count)],
            "calls": [[call[0], int(call[1:])] for call in calls.split()],
            "old": old,
        }

    jobs = [
        job([6, number(7, 10), 5, 4], [number(8, 12)], _MIXED, "bb-", False),
        job([5, 7, number(8, 11)], [2, number(3, 6)], "F9 I9 W9 F20 F0 I0 I20 W0 W20", "-b", True),
        job([number(5, 8), 4], [number(6, 9)], "F0 I0 F1 W0 I1 W1", "b", False),
        job([4, 6, 6, 5], [2, 3, 2], "F0 F1 F2 I2 I0 I1 W0 W1 W2", "bbb", True),
    ]
    return [{"jobs": jobs}] * case.world_size


def on_rank(answer: Any, jobs: Any) -> Any:
    import gc
    import sys

    from torch.utils._python_dispatch import TorchDispatchMode

    from dtlearn.memory.ledger.storage_ledger import StorageLedger

    class Products(TorchDispatchMode):
        """Adds up the floating-point operations of matrix products, also of those made by `*` of larger shapes."""

        def __init__(self) -> None:
            super().__init__()
            self.flops = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **(kwargs or {}))
            name = func.__name__.partition(".")[0].removesuffix("_")
            if name in ("mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "dot", "addbmm"):
                first = args[1] if name in ("addmm", "baddbmm", "addmv", "addbmm") else args[0]
                self.flops += 2 * out.numel() * first.shape[-1]
            elif name == "mul" and out.numel() > max(t.numel() for t in args if isinstance(t, torch.Tensor)):
                self.flops += 2 * out.numel()
            return out

    def objects(value: Any) -> int:
        """Python objects that an object leads to, with the memory of arrays, in units of 8 bytes."""
        seen, todo, count = set[int](), [value], 0
        while todo:
            one = todo.pop()
            own = isinstance(one, type) and one.__module__ == answer.__module__
            if id(one) in seen or isinstance(one, (type(gc), torch.Tensor)) or (isinstance(one, type) and not own):
                continue
            seen.add(id(one))
            if isinstance(one, torch.nn.Module):
                todo.append(vars(one))
                continue
            size = len(one) if isinstance(one, (bytes, bytearray, str)) else getattr(one, "nbytes", 0)
            count += 1 + int(size) // 8
            todo += [one.__closure__, one.__defaults__] if hasattr(one, "__globals__") else gc.get_referents(one)
        return count

    notes = []
    for job in jobs:
        layers = []
        for weight, bias in zip(job["weights"], job["biases"]):  # noqa: B905
            layer = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
            layer.weight.data = weight.clone()
            if bias is not None:
                layer.bias.data = bias.clone()
            layers.append(layer)
        parameters = [p for layer in layers for p in layer.parameters()]
        for p in parameters if job["old"] else ():
            p.grad = torch.ones_like(p)
        old = [p.grad for p in parameters]  # they stay alive, so that no new tensor has their address
        results, under_way, number = [], {}, 0
        with StorageLedger() as ledger:
            stage = answer(layers)
            names = {name: part for name, part in vars(sys.modules[answer.__module__]).items() if name[:2] != "__"}
            at_first = objects([stage, names])
            for op, k in job["calls"]:
                before = [None if p.grad is None else p.grad.tolist() for p in parameters]
                with Products() as products:
                    if op == "F":
                        under_way[k] = number
                        number += 1
                        value = stage.forward(k, job["x"][under_way[k]].clone())
                    elif op == "I":
                        value = stage.input_gradient(k, job["dy"][under_way[k]].clone())
                    else:
                        value = stage.weight_gradients(k)
                        del under_way[k]
                value = value.tolist() if op != "W" and isinstance(value, torch.Tensor) else None
                grads = [None if p.grad is None else p.grad.tolist() for p in parameters]
                held = outside = 0
                if not under_way:
                    gc.collect()
                    outside = objects([stage, names]) - at_first
                    pairs = [(p.grad, was) for p, was in zip(parameters, old) if p.grad is not None]  # noqa: B905
                    new = [grad for grad, was in pairs if was is None or grad.data_ptr() != was.data_ptr()]
                    held = ledger.now - sum(grad.nbytes for grad in new)
                note = {
                    "value": value,
                    "flops": products.flops,
                    "held": held,
                    "outside": outside,
                    "graph": any(p.grad is not None and p.grad.requires_grad for p in parameters),
                    "changed": grads != before,
                }
                results.append({**note, "grads": grads if op == "W" else None})
        notes.append(results)
    return notes


def reference(job: Job, wrong: str = "") -> Results:
    """What each call returns, and what .grad is after each W; with one mistake of `MISTAKES`."""
    layers = list(zip(job["weights"], job["biases"], strict=True))
    grads: list[Any] = []
    for weight, bias in layers:
        grads += [torch.ones_like(t) if job["old"] else None for t in (weight, bias) if t is not None]
    kept: dict[int, Any] = {}
    number, last_forward, last_back = 0, 0, 0
    found: Results = []
    for op, k in job["calls"]:
        if op == "F":
            x, xs = job["x"][number], list[torch.Tensor]()
            for place, (weight, bias) in enumerate(layers):
                x = x.relu() if place else x
                xs.append(x)
                x = torch.nn.functional.linear(x, weight, bias)
            value = x.relu() if wrong == "relu at the end" else x
            kept[k] = {"xs": xs, "dy": job["dy"][number], "end": x}
            number, last_forward = number + 1, k
        elif op == "I":
            own = kept[last_forward if wrong in ("one place", "last forward") else k]
            dy, dys = kept[k]["dy"], list[torch.Tensor]()
            dy = dy * (own["end"] > 0) if wrong == "relu at the end" else dy
            for place in reversed(range(len(layers))):
                dys.insert(0, dy)
                dy = dy @ layers[place][0]
                has_mask = {"mask of x": True, "masks shifted": place < len(layers) - 1}.get(wrong, place > 0)
                dy = dy * (own["xs"][place] > 0) if has_mask and wrong != "no relu" else dy
            kept[k] |= {"dys": dys}
            value, last_back = dy, k
        else:
            own = kept[last_back] if wrong in ("one place", "last input gradient") else kept[k]
            inputs_of = kept[last_forward if wrong in ("one place", "last forward") else k]["xs"]
            new: list[torch.Tensor | None] = []
            for (_, bias), x, dy in zip(layers, inputs_of, own["dys"], strict=True):
                x, dy = x.flatten(0, -2), dy.flatten(0, -2)
                scale = 1 / len(x) if wrong == "mean" else 1
                new += [scale * dy.t() @ x] + (
                    [None if wrong == "no bias" else scale * dy.sum(0)] if bias is not None else []
                )
            fresh = wrong == "overwritten"
            grads = [
                n if o is None or (fresh and n is not None) else o if n is None else o + n
                for o, n in zip(grads, new, strict=True)
            ]
            value = None
        found.append({"value": value, "grads": list(grads) if op == "W" else None})
    return found


def _as_tensors(results: Results) -> Results:
    def tensor(value: Any) -> Any:
        return torch.tensor(value) if isinstance(value, list) else value

    return [
        {"value": tensor(r["value"]), "grads": r["grads"] and [tensor(grad) for grad in r["grads"]]} for r in results
    ]


def _differ(a: Any, b: Any) -> Finding | None:
    return difference(a, b, 1e-3, 1e-4)


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    jobs = given[0]["jobs"]
    for job, results in zip(jobs, got[0], strict=True):
        if found := _changed(job, results):
            return found
    made = [_as_tensors(results) for results in got[0]]
    if any(_differ(reference(job), results) for job, results in zip(jobs, made, strict=True)):
        for wrong, (code, text) in MISTAKES.items():
            if not any(_differ(reference(job, wrong), results) for job, results in zip(jobs, made, strict=True)):
                return Finding(code, f"{_told(jobs[0])}: {text}")
        return next(filter(None, (_values(job, results) for job, results in zip(jobs, made, strict=True))), None)
    for judge in (_flops, _held):
        for job, results in zip(jobs, got[0], strict=True):
            if found := judge(job, results):
                return found
    return None


def _told(job: Job) -> str:
    shapes = ", ".join(f"{w.shape[1]} to {w.shape[0]}" for w in job["weights"])
    return f"layers {shapes}; calls {' '.join(f'{op}{k}' for op, k in job['calls'])}"


def _changed(job: Job, results: Results) -> Finding | None:
    """A .grad that an F or an I changed."""
    for (op, k), result in zip(job["calls"], results, strict=True):
        if op != "W" and result["changed"]:
            text = f"{_told(job)}: {op}{k} changed .grad of the weights: their gradients belong into W{k}"
            return Finding("DTL-RULE-WEIGHTS-IN-I", text)
    return None


def _values(job: Job, results: Results) -> Finding | None:
    """The first call whose result is wrong."""
    names = []
    for place, bias in enumerate(job["biases"]):
        names += [f"weight.grad of layer {place}"] + ([f"bias.grad of layer {place}"] if bias is not None else [])
    for number, ((op, k), right, have) in enumerate(zip(job["calls"], reference(job), results, strict=True)):
        done = f"{_told(job)}: after call {number + 1}, {op}{k}, "
        if op != "W":
            what = "the output" if op == "F" else "the gradient of x"
            if found := difference(right["value"], have["value"], 1e-3, 1e-4, what):
                return Finding(found.code, done + found.text)
            continue
        for name, want, grad in zip(names, right["grads"], have["grads"], strict=True):
            if found := difference(want, grad, 1e-3, 1e-4, name):
                return Finding(found.code, done + found.text)
    return None


def _flops(job: Job, results: Results) -> Finding | None:
    rows = math.prod(job["x"][0].shape[:-1])
    each = 2 * rows * sum(weight.numel() for weight in job["weights"])
    for (op, k), result in zip(job["calls"], results, strict=True):
        if op != "F" and result["flops"] > each:
            text = (
                f"{_told(job)}: the matrix products of {op}{k} take {result['flops']:,} floating-point operations, and "
            )
            text += f"{each:,} are needed, one product for each layer: "
            if op == "I":
                return Finding("DTL-RULE-WEIGHTS-IN-I", f"{text}I computes more than the gradients of inputs")
            twice = "it computes the gradients of inputs again, or a forward pass"
            return Finding("DTL-RULE-W-COMPUTES-AGAIN", f"{text}{twice}; what W needs was there in F and I")
    return None


def _held(job: Job, results: Results) -> Finding | None:
    for number, ((op, k), result) in enumerate(zip(job["calls"], results, strict=True), 1):
        if result["held"] > 0:
            text = f"{_told(job)}: after call {number}, {op}{k}, no micro-batch is under way, and {result['held']:,} "
            cause = "a .grad has autograd's graph behind it: compute under torch.no_grad()"
            cause = cause if result["graph"] else "W forgets what F and I kept"
            return Finding("DTL-RULE-NOT-FREED", f"{text}bytes are held beside .grad: {cause}")
        if result["outside"] > 40:
            text = f"{_told(job)}: after call {number}, {op}{k}, no micro-batch is under way, and the object has "
            text += f"{result['outside']:,} Python objects, or 8 bytes of arrays, more than at first"
            return Finding("DTL-RULE-MEMORY-OUTSIDE", f"{text}: W forgets what F and I kept, in any form")
    return None


def why(case: Case, given: Given, record: Record) -> str:
    """Of a run that raised: what is special in it."""
    text = (
        "x may have several dimensions before the features, a layer may have no bias, .grad may be None, and a number "
    )
    return f"{MAY_HELP}{text}k comes again when it is through"


CHECK = Check(on_rank, inputs, None, verify=verify, why=why, rules=[rules.most_messages("0")])
