"""ch08.find_the_leak: a loop's values, played in the judge in float64; what stays from step to step, by the ledger.

The ledger sees tensors. Graphs of autograd are counted by a token that each forward pass leaves in its graph. Of
Python objects and NumPy arrays the sizes are added up of all that the answer's variables lead to.
"""

from __future__ import annotations

import statistics
from typing import Any

import torch

from dtlearn.grading import Case, Check, Finding, Given, Mistake, compare
from dtlearn.runtime.record.record import Record

_CASES: dict[str, dict[str, Any]] = {
    "8 steps": {"steps": 8, "widths": (6, 48, 5), "rows": 32, "validation": 40, "lr": 0.04},
    "7 steps of large batches": {"steps": 7, "widths": (9, 24, 12), "rows": 400, "validation": 20, "lr": 0.07},
}
_MOMENTUM, _KEEP = 0.9, 0.9
_RATES = (0.001, 0.01, 0.05, 0.1, *(params["lr"] for params in _CASES.values()))  # that may stand in an answer
_FIRST = 2  # the step from which on memory may not grow
_SENT = ("communication", "gradients")  # categories of the ledger
_SLACK = 64  # bytes per step beside a row of samples: three numbers, as tensors or not
_OUTSIDE = "outside torch"  # a category of ours
_SLACK_OUTSIDE = 3_000  # bytes per step: many numbers in lists, which have 32 bytes each, and no batch of outputs

_SAYS = {
    "local": ("DTL-VALUE-NO-SYNC", "every rank trains with the gradients of its own batches: the mean is missing"),
    "sum": ("DTL-VALUE-FACTOR", "the gradients are added up over the ranks, and not divided by their number"),
    "untrained": ("DTL-VALUE-STALE", "the model is not trained: its parameters stay what they were"),
    "no momentum": ("DTL-VALUE-OPTIONS", "the optimizer has lost its momentum"),
    "fixed lr": ("DTL-VALUE-ARGUMENT-IGNORED", "the learning rate is a fixed number, whatever lr is"),
    "before": ("DTL-VALUE-SMOOTHED", "the validation loss is that of the model before the step; it belongs after it"),
    "not smoothed": ("DTL-VALUE-SMOOTHED", "smoothed has the validation losses themselves, not their moving average"),
    "begins": ("DTL-VALUE-SMOOTHED", "the moving average begins at the first validation loss; it begins at 0"),
    "training": ("DTL-VALUE-SMOOTHED", "smoothed has the moving average of the training losses"),
    "last row": ("DTL-VALUE-SAMPLE-ROWS", "samples has the last row of each batch's output; the first one is asked"),
    "last step": ("DTL-VALUE-SAMPLE-ROWS", "samples has the output of the last step in every row"),
    "mean row": ("DTL-VALUE-SAMPLE-ROWS", "samples has the mean of each batch's outputs; its first row is asked"),
    "after": ("DTL-VALUE-SAMPLE-ROWS", "samples has the outputs of the model after the step, not those of the step"),
}


def inputs(case: Case) -> Given:
    g, p = case.generator(), case.params
    wide_in, hidden, wide_out = p["widths"]
    shapes = ((hidden, wide_in), (hidden,), (wide_out, hidden), (wide_out,))
    weights = [0.3 * torch.randn(*shape, generator=g) for shape in shapes]

    def pair(rows: int) -> list[torch.Tensor]:
        return [torch.randn(rows, wide_in, generator=g), torch.randn(rows, wide_out, generator=g)]

    return [
        {
            "weights": weights,
            "batches": [pair(p["rows"]) for _ in range(p["steps"])],
            "validation": pair(p["validation"]),
            "lr": p["lr"],
            "first": _FIRST,
        }
        for _ in range(case.world_size)
    ]


def on_rank(answer: Any, weights: Any, batches: Any, validation: Any, lr: Any, first: Any) -> Any:
    import gc
    import os
    import sys
    import time
    import types
    import weakref
    from collections import Counter
    from itertools import pairwise

    import numpy as np

    from dtlearn.memory.ledger.ledger import MemoryLedger

    class Token:
        """In a graph; it goes with it."""

    class Mark(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, number: int) -> Any:
            ctx.token = Token()
            tokens.append((number, weakref.ref(ctx.token)))
            return x.view_as(x)

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            return gradient, None

    own = sys.modules["exercise"].__file__
    tokens: list[Any] = []
    seen: list[Any] = []
    lines: dict[str, list[str]] = {"training": [], "validation": []}
    linear = torch.nn.Linear
    layers = [
        linear(weights[0].shape[1], len(weights[0])),
        torch.nn.Tanh(),
        linear(weights[2].shape[1], len(weights[2])),
    ]
    model = torch.nn.Sequential(*layers)
    for parameter, weight in zip(model.parameters(), weights, strict=True):
        parameter.data.copy_(weight)
    places = {x.data_ptr(): step for step, (x, _) in enumerate(batches)}

    def is_apart(one: Any) -> bool:
        """No data of the answer."""
        if isinstance(one, types.FunctionType):
            return one.__code__.co_filename != own
        if isinstance(one, type):
            return one.__module__ != "exercise"
        apart = torch.UntypedStorage, types.ModuleType, types.CodeType, types.FrameType
        return isinstance(one, apart) or type(one).__module__.startswith("dtlearn")

    def outside_torch(frame: Any) -> Counter[tuple[str, str]]:
        """Bytes of Python objects and NumPy arrays, by the variable that leads to them."""
        made: Counter[tuple[str, str]] = Counter()
        variables: list[tuple[str, Any]] = []
        while frame:
            if frame.f_code.co_filename == own:
                variables += (copy := frame.f_locals).items()
                if frame.f_code.co_flags & 1 and isinstance(copy, dict):  # a function's, and before Python 3.13
                    copy.clear()  # the frame would keep it, with all tensors
            frame = frame.f_back
        variables += vars(sys.modules["exercise"]).items()
        met = set[int]()
        for name, value in variables:
            waiting = [value]
            while waiting:
                one = waiting.pop()
                if id(one) in met or is_apart(one):
                    continue
                met.add(id(one))
                if isinstance(one, torch.Tensor):  # the ledger counts it
                    waiting += vars(one).values()
                    continue
                made["outside torch", name] += sys.getsizeof(one, 0)
                waiting += gc.get_referents(one)
                waiting += [one.base] if isinstance(one, np.ndarray) else []  # a view keeps the whole array
        return made

    def look(frame: Any) -> None:
        gc.collect()
        for _ in range(20):  # a thread of gloo lets go of what was sent when it gets a processor
            stays: Counter[tuple[str, str]] = Counter()
            record = ledger.record()
            for one in record.at(record.clock):
                stays[one.category, one.line] += one.bytes
            if not seen or stays.total() <= seen[-1]["stays"].total() + 64:
                break
            time.sleep(0.01)
        alive = [number for number, token in tokens if token() is not None]
        graphs = {"training": sum(n >= 0 for n in alive), "validation": alive.count(-1)}
        seen.append({"stays": stays, "outside": outside_torch(frame), "graphs": graphs})

    def before(module: Any, args: Any) -> None:
        """Which line calls the model, as the ledger names it; and what is there before this step."""
        frame, step = sys._getframe(1), places.get(args[0].data_ptr(), -1)
        while frame.f_back and frame.f_code.co_filename != own:
            frame = frame.f_back
        lines["training" if step >= 0 else "validation"].append(
            f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
        )
        if step >= first:
            look(frame)

    model.register_forward_pre_hook(before)
    model.register_forward_hook(lambda module, args, out: Mark.apply(out, places.get(args[0].data_ptr(), -1)))
    with MemoryLedger(model, inputs=(batches, validation)) as ledger:
        result = answer(model, [tuple(pair) for pair in batches], tuple(validation), lr)
    if isinstance(result, dict):
        result = {name: one.detach() if isinstance(one, torch.Tensor) else one for name, one in result.items()}
    stays = [look["stays"] + look["outside"] for look in seen]
    keys = sorted(set().union(*stays))
    grown = [[*key, [now[key] - before[key] for before, now in pairwise(stays)]] for key in keys]
    graphs = {}
    if seen:
        more = {name: seen[-1]["graphs"][name] - number for name, number in seen[0]["graphs"].items()}
        graphs = {name: number / max(len(seen) - 1, 1) for name, number in more.items()}
    parameters = [p.detach() for p in model.parameters()]
    return {
        "result": result,
        "parameters": parameters,
        "passes": len(seen),
        "grown": grown,
        "graphs": graphs,
        "lines": {name: sorted(set(called)) for name, called in lines.items()},
    }


def _forward(weights: list[torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    return (x.double() @ weights[0].T + weights[1]).tanh() @ weights[2].T + weights[3]


def _play(case: Case, given: Given, wrong: str = "", lr: float | None = None) -> list[dict[str, Any]]:
    """The loop in float64, with one mistake of `_SAYS` or none; `lr`: another than the case's."""
    lr = case.params["lr"] if lr is None else lr
    models = [[w.double().requires_grad_() for w in i["weights"]] for i in given]
    moments = [[torch.zeros_like(w) for w in model] for model in models]
    made: list[dict[str, Any]] = [{"losses": [], "smoothed": [], "samples": []} for _ in given]

    def validation(rank: int) -> float:
        x, y = given[rank]["validation"]
        return float((_forward(models[rank], x) - y).square().mean().item())

    for step in range(case.params["steps"]):
        gradients, losses, before = [], [], [validation(rank) for rank in range(len(given))]
        for i, model, one in zip(given, models, made, strict=True):
            out = _forward(model, i["batches"][step][0])
            loss = (out - i["batches"][step][1]).square().mean()
            gradients.append(torch.autograd.grad(loss, model))
            losses.append(loss.item())
            row = out.mean(0) if wrong == "mean row" else out[-1 if wrong == "last row" else 0]
            one["samples"].append(row.detach())
        mean = [sum(column) / len(given) for column in zip(*gradients, strict=True)]
        for rank, (model, one) in enumerate(zip(models, made, strict=True)):
            own = gradients[rank] if wrong == "local" else [g * len(given) for g in mean] if wrong == "sum" else mean
            for k, gradient in enumerate(own):
                moments[rank][k] = (0.0 if wrong == "no momentum" else _MOMENTUM) * moments[rank][k] + gradient
                if wrong != "untrained":
                    model[k].data -= lr * moments[rank][k]
            value = before[rank] if wrong == "before" else losses[rank] if wrong == "training" else validation(rank)
            last = one["smoothed"][-1] if one["smoothed"] else value if wrong == "begins" else 0.0
            one["smoothed"].append(value if wrong == "not smoothed" else _KEEP * last + (1 - _KEEP) * value)
            one["losses"].append(losses[rank])
            if wrong == "after":
                one["samples"][-1] = _forward(model, given[rank]["batches"][step][0][0]).detach()
    for one in made:
        rows = [one["samples"][-1]] * len(one["samples"]) if wrong == "last step" else one["samples"]
        one["samples"] = torch.stack(rows).float()
    return [{**one, "parameters": [p.detach().float() for p in m]} for one, m in zip(made, models, strict=True)]


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    return _play(case, given)


def mistakes(case: Case, given: Given) -> list[Mistake]:
    wrong = [name for name in _SAYS if case.world_size > 1 or name not in ("local", "sum")]
    rates = [lr for lr in _RATES if lr != case.params["lr"]]
    fixed = [Mistake(*_SAYS["fixed lr"], _play(case, given, lr=lr)) for lr in rates]
    return [Mistake(*_SAYS[name], _play(case, given, name)) for name in wrong if name != "fixed lr"] + fixed


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    """The values; then, in the order of what they cost, the leaks of the first rank that has some."""
    for rank, one in enumerate(got):
        if not isinstance(one["result"], dict):
            return Finding(
                "DTL-VALUE-TYPE", f"rank {rank} should return a dict with losses, smoothed and samples", rank
            )
    right, values = expected(case, given), [{**one["result"], "parameters": one["parameters"]} for one in got]
    if found := compare(_VALUES, case, given, right, values):
        return found
    wanted = case.params["steps"] - _FIRST
    for rank, one in enumerate(got):
        if one["passes"] < wanted:
            text = (
                f"rank {rank} called the model for {one['passes']} of the last {wanted} batches: each step has to call "
            )
            return Finding("DTL-RULE-PASSES", f"{text}it, with the batch's x", rank)
        if leaks := _leaks(one, 4 * case.params["widths"][-1]):
            also = "".join(f". Also, {text}" for _, text in leaks[1:])
            return Finding(leaks[0][0], f"memory grows in every step on rank {rank}: {leaks[0][1]}{also}", rank)
    return None


def _leaks(one: dict[str, Any], row: int) -> list[tuple[str, str]]:
    """What grows on a rank: codes and sentences, the most bytes first. `row`: bytes of a row of samples."""
    graphs = [name for name, number in one["graphs"].items() if number > 0]
    grown = [(category, line, _per_step(category, more)) for category, line, more in one["grown"]]
    sent = [g for g in grown if g[0] in _SENT and g[2] > 0]
    outside = [g for g in grown if g[0] == _OUTSIDE and g[2] > 0]
    rest = [g for g in grown if g[0] not in (*_SENT, _OUTSIDE) and g[2] > 0]
    # With a graph much stays: then a view is what stays of a pass that is in none.
    apart = [line for line in one["lines"]["training"] if line not in one["lines"]["validation"]]
    viewed = [g for g in rest if not graphs or ("training" not in graphs and g[1] in apart)]
    leaks: list[tuple[float, str, str]] = []
    for name in graphs:
        text = (
            f"the graph of each {name} pass stays, with all that it keeps: a tensor with a grad_fn is in a list or in "
        )
        text += "a sum that outlives the step. Take item(), or detach()"
        text += "" if name == "training" else ", or work in torch.no_grad()"
        leaks.append((_bytes([g for g in rest if g not in viewed]), "DTL-RULE-MEMORY-GRAPH", text))
    if sent:
        text = f"{_bytes(sent):,.0f} bytes a step of gradients that were sent stay{_lines(sent)}: the work of an "
        text += "asynchronous call holds its tensor as long as something holds the work, after wait() too"
        leaks.append((_bytes(sent), "DTL-RULE-MEMORY-WORK", text))
    if _bytes(viewed) > row + _SLACK:
        text = f"{_bytes(viewed):,.0f} bytes a step stay{_lines(viewed)}, and no graph; a row of samples has {row}: a "
        text += "view such as a row keeps the memory of the whole tensor, clone() makes one with its own"
        leaks.append((_bytes(viewed), "DTL-RULE-MEMORY-VIEW", text))
    if (size := _bytes(outside)) > _SLACK_OUTSIDE:
        names = " and ".join(name for _, name, more in outside if more > size / 10)
        text = f"{size:,.0f} bytes a step of Python objects and NumPy arrays stay in {names}; at most "
        text += f"{_SLACK_OUTSIDE:,} may. Keep a copy of the first row of a batch's outputs: in NumPy, too, a row is a "
        text += "view of the whole array"
        leaks.append((size, "DTL-RULE-MEMORY-OUTSIDE", text))
    return [(code, text) for _, code, text in sorted(leaks, key=lambda leak: -leak[0])]


def _per_step(category: str, more: list[int]) -> float:
    """Bytes that each step adds. A thread of gloo may hold what was sent a little longer: there one step is no leak."""
    if not more:
        return 0.0
    return float(statistics.median(more) if category in _SENT else sum(more) / len(more))


def _bytes(grown: list[Any]) -> float:
    return float(sum(size for _, _, size in grown))


def _lines(grown: list[Any]) -> str:
    lines = dict.fromkeys(line.rpartition(":")[2] for _, line, _ in grown if line)
    return f", made in line {' and '.join(lines)}" if lines else ""


_VALUES = Check(on_rank, inputs, expected, cases=_CASES, mistakes=mistakes, rtol=1e-3, atol=1e-4)
CHECK = Check(on_rank, inputs, None, cases=_CASES, verify=verify, may_change_inputs=False)
