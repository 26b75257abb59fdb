"""ch08.checkpoint: a chain of segments, each in a checkpoint, beside the same chain without.

The segments belong to the check: they note when they run, which random numbers they draw, and of which run backward
gets what was saved, wherever it was kept. What is right is computed for all ranks in one graph, without a checkpoint.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from dtlearn.grading import Case, Check, Finding, Given, difference
from dtlearn.memory.ledger.storage_ledger import StorageLedger
from dtlearn.memory.recomputation.checkpoint import checkpoint
from dtlearn.runtime.record.record import Record

from ..own_work import find_forbidden
from ._whole_chain import whole

_SEGMENTS, _WIDTH, _HIDDEN = 3, 8, 64
_STATE = 6_000  # bytes; the state of a random generator has 5,056
_CASES: dict[str, dict[str, Any]] = {
    "a chain of layers": {},
    "dropout": {"dropout": True},
    "inputs of other kinds": {"others": True, "leaf": True},
    "several results": {"several": True, "leaf": True},
    "a collective in the segment": {"collective": True, "dropout": True},
}
_KINDS = ("dropout", "others", "leaf", "several", "collective")


def inputs(case: Case) -> Given:
    given: Given = []
    for rank in range(case.world_size):
        g = case.generator(rank)
        rows = 128 + 16 * int(torch.randint(4, (), generator=case.generator(99)))
        made = {"x": torch.randn(rows, _WIDTH, generator=g)}
        made |= {"down": torch.randn(_SEGMENTS, _WIDTH, _HIDDEN, generator=g) / 3}
        made |= {"up": torch.randn(_SEGMENTS, _HIDDEN, _WIDTH, generator=g) / 8}
        made |= {"bias": torch.randn(5, _HIDDEN, generator=g), "index": torch.randint(5, (rows,), generator=g)}
        made |= {"gain": torch.randn(_HIDDEN, generator=g) / 3}
        kinds = {kind: bool(case.params.get(kind)) for kind in _KINDS}
        given.append({**made, "seed": int(torch.randint(10**6, (), generator=g)), "kinds": kinds})
    return given


def on_rank(
    answer: Any, x: Any, down: Any, up: Any, bias: Any, index: Any, gain: Any, seed: int, kinds: Any, ledger: Any = None
) -> Any:
    import gc
    import sys
    import time

    from dtlearn.memory.ledger.storage_ledger import StorageLedger

    class Sum(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, part: Any) -> Any:
            part = part.clone()
            if kinds["collective"] and dist.is_initialized():
                dist.all_reduce(part.detach())  # whoever keeps it keeps no graph
            return part

        backward = forward

    class Run(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, h: Any, late: bool) -> Any:
            ctx.save_for_backward(torch.full_like(h, late))
            return h.view_as(h)

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            used.add(bool(ctx.saved_tensors[0].all()))
            return gradient, None

    used: set[bool] = set()
    doors: set[str] = set()
    x = x.clone().requires_grad_(kinds["leaf"])
    bias = bias.clone().requires_grad_(False)
    gain = gain.clone().requires_grad_()
    parameters = [(torch.nn.Parameter(a.clone()), torch.nn.Parameter(b.clone())) for a, b in zip(down, up, strict=True)]
    when, runs, drawn = ["forward"], [[0, 0] for _ in parameters], [[0.0, 0.0] for _ in parameters]

    def segment(i: int) -> Any:
        def run(x: Any, *others: Any) -> Any:
            late = when[0] != "forward"
            runs[i][late] += 1
            frame: Any = sys._getframe()
            while frame:  # whoever calls, by whatever name
                doors.update({"torch.utils.checkpoint"} & {frame.f_globals.get("__name__")})
                frame = frame.f_back
            h = torch.nn.functional.gelu(x @ parameters[i][0])
            if others:
                rows, table, scale, nothing, factor = others
                h = scale * (h + table[rows]) * factor if nothing is None else h
            if kinds["dropout"]:
                mask = (torch.rand(h.shape) < 0.7).float()
                drawn[i][late] = (mask * torch.arange(mask.numel()).view(mask.shape)).double().sum().item()
                h = h * mask
            h = Run.apply(h, late)
            y = x + Sum.apply(h @ parameters[i][1])
            return (y, h.sum(1), y.argmax(1)) if kinds["several"] else y

        return run

    torch.manual_seed(seed)
    others = (index, bias, 0.5, None, gain.exp()) if kinds["others"] else ()
    with ledger or StorageLedger() as counted:
        y, aside, rest = x, [], None  # type: Any, list[Any], Any
        for i in range(len(parameters)):
            result = answer(segment(i), y, *others)
            if kinds["several"]:
                if not isinstance(result, tuple):
                    return {"type": type(result).__name__}
                y, *rest = result
                aside.append(rest)
            else:
                y = result
        if not isinstance(y, torch.Tensor):
            return {"type": type(y).__name__}
        held, between = counted.now, torch.rand(3)
        note: dict[str, Any] = {"y": y.detach().clone(), "labels": [rest[1].clone() for rest in aside], "held": held}
        note |= {"between": between, "graph": y.requires_grad}
        if not y.requires_grad:
            return {**note, "runs": runs, "doors": [*doors]}
        loss = y.square().mean() + (aside[0][0].mean() if aside else 0)  # the other results are not used
        del result, y, aside, rest
        when[0] = "backward"
        loss.backward()
        del loss
        note |= {"drawn": [list(d) for d in drawn], "after": torch.rand(3), "runs": [list(r) for r in runs]}
        note |= {"used": sorted(used), "doors": [*doors], "gain": gain.grad}
        known = [note["y"], *note["labels"], note["between"], note["after"], x.grad, gain.grad]
        known += [p.grad for pair in parameters for p in pair]
        expected = sum(t.nbytes for t in known if t is not None)
        for _ in range(50):  # a thread of gloo may hold what it was given a little longer
            if counted.now <= expected:
                break
            gc.collect()  # only where something stays: it takes the judge, who runs this too, 0.15 s
            time.sleep(0.01)
        note |= {"left": counted.now - expected}
        note |= {"gradients": [[p.grad for p in pair] for pair in parameters], "x": x.grad}
        now = {"x": x.requires_grad != kinds["leaf"], "bias": bias.requires_grad}
        note |= {"changed": [name for name, changed in now.items() if changed]}
        when[0] = "forward"
        with torch.no_grad():
            result = answer(segment(0), x.detach(), *others)
        note |= {"frozen": (result[0] if kinds["several"] else result).requires_grad}
    return note


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    for rank, (right, one, i) in enumerate(zip(whole(given), got, given, strict=True)):
        found = _judged(right, one, i)
        is_plain = found is not None and found[0] == "DTL-VALUE"
        if is_plain and not _off(whole(given, aside=False)[rank]["gradients"], one["gradients"]):
            text = "the gradients of one result only are there: backward has to begin at all results that have one"
            found = "DTL-VALUE-ONE-RESULT", text
        if found:
            return Finding(found[0], f"rank {rank}: {found[1]}", rank)
    return None


def _judged(right: dict[str, Any], one: dict[str, Any], i: dict[str, Any]) -> tuple[str, str] | None:
    """What is wrong on one rank: a code and what to say."""
    if "type" in one:
        wanted = "a tuple" if i["kinds"]["several"] else "a tensor"
        return "DTL-VALUE-TYPE", f"the function returns {wanted}, and checkpoint {one['type']}"
    if one["doors"]:
        return "DTL-RULE-NAME", f"the function is called by {one['doors'][0]}: {_TORCHS}"
    firsts = [a for a, _ in one.get("drawn", ())]
    if i["kinds"]["dropout"] and any(abs(a - b) > 0.5 for a, b in zip(right["drawn"], firsts, strict=False)):
        text = "the first run draws other random numbers than a run without a checkpoint: the random generator was "
        return "DTL-VALUE-GENERATOR", f"{text}set, or moved on, before it"
    if _off(right["y"], one["y"]) or _off(right["labels"], one["labels"]):
        return "DTL-VALUE", "checkpoint does not return what the function returns"
    if not one["graph"]:
        text = "the result requires no gradient, so backward never comes to the checkpoint. Here no input of the "
        text += "first segment requires one: its parameters do, and autograd does not see them among the inputs"
        return "DTL-VALUE-NO-GRAPH", text
    if _off(right["between"], one["between"]):
        text = "after forward the random generator is not where a run without a checkpoint leaves it"
        return "DTL-VALUE-GENERATOR", text
    if found := _runs(one, i):
        return found
    if one["used"] != [True]:
        text = "the function runs again, and backward goes through what the first run kept all the same, in whatever "
        return "DTL-RULE-KEPT", f"{text}memory: NumPy's and that of other threads count too. Use the second run's"
    if i["kinds"]["dropout"] and any(abs(a - b[1]) > 0.5 for a, b in zip(right["drawn"], one["drawn"], strict=True)):
        text = "the second run draws other random numbers than the first: dropout drops other elements, and the "
        return "DTL-VALUE-REDRAWN", f"{text}gradients belong to another loss"
    if _off(right["after"], one["after"]):
        text = "after backward the random generator is not where it was before: the state of the first run is still "
        return "DTL-VALUE-GENERATOR", f"{text}set, or was moved on, and later numbers are drawn twice or left out"
    if found := _gradients(right, one):
        return found
    if one["changed"]:
        text = f"the requires_grad of an input was changed: {', '.join(one['changed'])}"
        return "DTL-VALUE-INPUT-CHANGED", f"{text}. Set it on a detached copy"
    if one["frozen"]:
        return "DTL-VALUE-NOT-FROZEN", "under torch.no_grad() the result requires a gradient"
    if one["left"] > 512 + 2 * i["x"].nbytes * i["kinds"]["collective"]:  # whose last call may still hold its tensor
        text = f"after backward {one['left']:,} bytes are still held that are no gradients: what ctx "
        return "DTL-RULE-NOT-FREED", f"{text}or a hook has as an attribute lives on"
    return None


def _off(right: Any, got: Any) -> bool:
    return bool(difference(right, got, 1e-4, 1e-5))  # sums over ranks cancel: of values up to 17 a bit is 2e-6


def _runs(one: dict[str, Any], i: dict[str, Any]) -> tuple[str, str] | None:
    """How often the function ran, and what is kept between forward and backward."""
    rows = i["x"].shape[0]
    between = _SEGMENTS * (rows * (_WIDTH * 4 + (4 + 8) * i["kinds"]["several"]) + _STATE)
    inside = _SEGMENTS * rows * _HIDDEN * 4
    for number, (first, second) in enumerate(one["runs"]):
        name = f"the function of segment {number}"
        if first != 1:
            return "DTL-RULE-RUNS", f"{name} runs {first} times in forward: once is enough"
        if second == 0 and one["held"] > between + inside // 2:
            text = f"nothing is computed again: {name} runs in forward only, and {one['held']:,} bytes are held "
            return "DTL-RULE-KEPT", f"{text}until backward; results and inputs of the segments are {between:,}"
        if second == 0:
            text = f"{name} does not run again in backward, though its activations are gone: it is to be computed "
            return "DTL-RULE-RUNS", f"{text}again, not stored elsewhere"
        if second > 1:
            text = f"{name} runs {second} times in backward: once is enough for all its results and inputs"
            return "DTL-RULE-RUNS", text
    if one["held"] > between + inside // 4:
        text = f"{one['held']:,} bytes are held between forward and backward; results and inputs of the segments are "
        text += f"{between:,}: the function runs again, and its activations are kept all the same. Run it without a "
        return "DTL-RULE-KEPT", f"{text}graph in forward"
    return None


def _gradients(right: dict[str, Any], one: dict[str, Any]) -> tuple[str, str] | None:
    whole, got = right["gradients"], one["gradients"]
    if all(g is None for pair in got for g in pair):
        text = "the parameters got no gradients: the function uses them, and they are not among its inputs. "
        return "DTL-VALUE-NO-GRADIENTS", f"{text}autograd.backward() reaches them, autograd.grad() of the inputs not"
    if not any(g is not None and bool(g.any()) for pair in got[:-1] for g in pair):
        text = "only the last segment's parameters have gradients: its input's gradient does not reach the segment "
        return "DTL-VALUE-INPUT-GRADIENT", f"{text}before it. Return it from backward, in the input's place"
    for s, (wanted, pair) in enumerate(zip(whole, got, strict=True)):
        for a, b in zip(wanted, pair, strict=True):
            if b is not None and _off(a, b) and not _off(2 * a, b):
                text = f"the gradients of segment {s}'s parameters are twice what they should be: backward goes through"
                return "DTL-VALUE-GRADIENT-TWICE", f"{text} it twice"
    if right["x"] is not None and one["x"] is None:
        text = "the gradient of the first segment's input is None: return it from backward, in the input's place"
        return "DTL-VALUE-INPUT-GRADIENT", text
    if right["gain"] is not None and one["gain"] is None:
        text = "the last input requires a gradient and gets none: each input that is a tensor may, not only the first"
        return "DTL-VALUE-INPUT-GRADIENT", text
    for name, a, b in (
        *((f"segment {s}'s parameters", w, g) for s, (w, g) in enumerate(zip(whole, got, strict=True))),
        ("x", right["x"], one["x"]),
        ("the last input", right["gain"], one["gain"]),
    ):
        if a is None and b is not None:
            return "DTL-VALUE-INPUT-GRADIENT", "an input that requires no gradient has one"
        if a is not None and (found := difference(a, b, 1e-4, 1e-5, f"the gradient of {name}")):
            return found.code, found.text
    return None


_PEAKS: dict[tuple[str, int], int] = {}  # by case and rows, which decide


def payload(case: Case, given: Given) -> int:
    """The peak of a good answer: the package's, on one rank of the judge; the ledger's own sizes are the same there."""
    if (key := (case.name, len(given[0]["x"]))) not in _PEAKS:
        with torch.random.fork_rng(), StorageLedger() as ledger:
            on_rank(checkpoint, **given[0])
        _PEAKS[key] = ledger.peak
    return _PEAKS[key]


def why(case: Case, given: Given, record: Record) -> str:
    """Of a run that raised: what is special in it."""
    texts = {
        "others": "the inputs are a float tensor with a gradient, an integer one, a float one without, a number, None, "
        "and another float tensor with a gradient that was computed before and goes into all segments",
        "several": "the function returns three tensors; one is not used in the loss, one is of integers",
        "collective": "the function contains an all_reduce, which all ranks call again in backward",
    }
    chain = "the segments of a chain: each takes the result of the one before, and has a backward of its own"
    return next((text for kind, text in texts.items() if case.params.get(kind)), chain)


_TORCHS = "it is torch's answer. Write your own here"


def without_torchs(source: str) -> Finding | None:
    """A rule on the text: no checkpoint of torch."""
    places = ("utils.checkpoint", "distributed.algorithms._checkpoint", "distributed._composable")
    return find_forbidden(source, {f"torch.{place}": _TORCHS for place in places})


CHECK = Check(
    on_rank,
    inputs,
    None,
    cases=_CASES,
    verify=verify,
    why=why,
    payload=payload,
    memory=lambda case, given: 1.6 * payload(case, given),
    reads=[without_torchs],
    seconds=15.0,
)
