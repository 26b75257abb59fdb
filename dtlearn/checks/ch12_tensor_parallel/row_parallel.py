"""ch12.row_parallel: layers with and without a bias, on groups of several sizes, for two micro-batches each.

All layers are made before the first is used, and used once more when their parameters have changed.

The function g is the check's own. The whole layer runs in the judge.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist

from dtlearn.grading import Case, Check, Finding, Given, Mistake, Stress, compare, rules
from dtlearn.runtime.record.record import Record

from ..sent import no_stores
from . import MAY_HELP
from .ways.held import CheckOfMemory, holds
from .ways.refusals import refusal
from .ways.row_layers import PARTS, WAYS, Way, play, title_of

_PAIR, _ONES, _HALVES, _ALL, _UNEVEN = [[0, 1]], [[0], [1]], [[0, 2], [1, 3]], [[0, 1, 2, 3]], [[0], [1, 2, 3]]
# By world size: groups, features of a rank and of the output, the shape before them, whether there is a bias.
_LAYERS: dict[int, tuple[tuple[list[list[int]], int, int, tuple[int, ...], bool], ...]] = {
    2: ((_PAIR, 3, 4, (5,), True), (_PAIR, 2, 3, (2, 3), False), (_ONES, 4, 3, (2,), True)),
    4: ((_ALL, 2, 3, (2, 2), True), (_HALVES, 3, 2, (4,), True), (_UNEVEN, 2, 4, (), True)),
}
_REFUSED = {2: (_PAIR, 5), 4: (_ALL, 6)}  # groups and input features
_DTYPES = (torch.float64, torch.float32, torch.float64)


def inputs(case: Case) -> Given:
    g, n = case.generator(), case.world_size
    given: Given = [{"jobs": []} for _ in range(n)]
    for number, (groups, part, out, shape, has_bias) in enumerate(_LAYERS[n]):
        dtype = _DTYPES[number]

        def random(*shape: int, dtype: torch.dtype = dtype) -> torch.Tensor:
            return torch.randn(shape, dtype=dtype, generator=g)

        for group in groups:
            whole = {"weight": random(part * len(group), out).mT, "bias": random(out) if has_bias else None}
            dys = [random(*shape, out) for _ in range(2)]
            for rank in group:
                xs = [random(*shape, part) for _ in range(2)]
                given[rank]["jobs"].append({"groups": groups, "group": group, **whole, "xs": xs, "dys": dys})
    groups, features = _REFUSED[n]
    refused: dict[str, Any] = {"groups": groups, "weight": torch.zeros(4, features), "bias": None, "xs": []}
    for rank, mine in enumerate(given):
        mine["jobs"].append(refused | {"group": next(group for group in groups if rank in group)})
    return given


def on_rank(answer: Any, jobs: Any) -> Any:
    import gc
    import weakref

    class AddUp(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, group: Any) -> Any:
            total = x.clone(memory_format=torch.contiguous_format)
            dist.all_reduce(total, group=group)
            return total

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            return gradient, None

    def where_of(job: Any) -> str:
        at = f"a group of the ranks {job['group']}; this is rank {rank}"  # type: ignore[name-defined] # noqa: F821
        return f"(a weight {tuple(job['weight'].shape)}, {at})"

    made: Any = {}
    notes: Any = []
    layers: Any = []
    for job in jobs:
        for members in job["groups"]:
            if str(members) not in made:
                made[str(members)] = dist.new_group(members)
        group, calls = made[str(job["group"])], [0]

        def g(x: Any, group: Any = group, calls: Any = calls) -> Any:
            calls[0] += 1
            return AddUp.apply(x, group)

        array = job["weight"].mT.contiguous().numpy().copy()
        alive, weight = weakref.ref(array), torch.from_numpy(array).mT
        bias = None if job["bias"] is None else job["bias"].clone()
        try:
            layers.append((answer(weight, bias, group, g), array, alive, weight, bias, calls))
        except (RuntimeError, TypeError, ValueError, AttributeError, IndexError, AssertionError) as error:
            if isinstance(error, NotImplementedError) or job["xs"]:
                error.args = (f"{' '.join(str(error).split()).rstrip('.')} {where_of(job)}",)
                raise
            refused: Any = {"raised": type(error).__name__, "text": str(error)}
        else:
            refused = {"raised": ""}
    del array, weight
    layers.reverse()
    for job in jobs[:-1]:
        layer, array, alive, weight, bias, calls = layers.pop()
        try:
            own = layer.weight
            parameters = {name: p.detach().clone() for name, p in layer.named_parameters()}
            xs = [x.mT.contiguous().mT.requires_grad_() if x.dim() > 1 else x.requires_grad_() for x in job["xs"]]
            outputs = [layer(x) for x in xs]
            kept = [y.detach().clone() for y in outputs]
            for y, dy in zip(outputs, job["dys"], strict=True):
                y.backward(dy.clone())
            note = {
                "parameters": parameters,
                "outputs": kept,
                "dx": [None if x.grad is None else x.grad.clone() for x in xs],
                "gradients": {n: None if p.grad is None else p.grad.clone() for n, p in layer.named_parameters()},
                "calls": calls[0],
                "larger": own.untyped_storage().nbytes() > own.numel() * own.element_size(),
            }
            with torch.no_grad():
                for p in layer.parameters():
                    p.add_(1)
                note["after an update"] = layer(job["xs"][0].detach())
            note["changed"] = not torch.equal(weight, job["weight"])
            note["bias changed"] = bias is not None and not torch.equal(bias, job["bias"])
            del array, weight
            if alive() is not None:
                gc.collect()
            note["held"] = alive() is not None or holds(job["weight"], parameters["weight"], layer, answer)
            notes.append(note)
        except (RuntimeError, TypeError, ValueError, AttributeError, IndexError, AssertionError) as error:
            error.args = (f"{' '.join(str(error).split()).rstrip('.')} {where_of(job)}",)
            raise
    return [*notes, refused]


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    return play(given, Way())


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    right, named = play(given, Way()), [dict[str, Any]() for _ in given]
    for rank, notes in enumerate(got):
        for job, note in zip(given[rank]["jobs"], notes, strict=True):
            if job["xs"]:
                keys = ("parameters", "outputs", "dx", "gradients", "after an update")
                named[rank][title_of(job)] = {key: note[key] for key in keys}
    only = lambda values: [{t: {"parameters": v["parameters"]} for t, v in own.items()} for own in values]  # noqa: E731
    cuts = [Mistake(f"DTL-VALUE-{code}", text, only(play(given, way))) for code, text, way in PARTS]
    parts = replace(_VALUES, mistakes=lambda *_: cuts)
    if found := compare(parts, case, given, only(right), only(named)) or _memory(given, got):
        return found
    # The calls are counted first where all of a layer's went to another layer's g.
    found = _others_g(given, got) or compare(_VALUES, case, given, right, named)
    return found or _calls(given, got) or _refused(given, got)


def mistakes(case: Case, given: Given) -> list[Mistake]:
    return [Mistake(f"DTL-VALUE-{code}", text, play(given, way)) for code, text, way in WAYS]


def _memory(given: Given, got: list[Any]) -> Finding | None:
    """Whether the parameters have memory of their own, and nothing else has the whole weight's."""
    for rank, notes in enumerate(got):
        for job, note in zip(given[rank]["jobs"], notes, strict=True):
            if not job["xs"]:
                continue
            if note["larger"] or note["changed"] or note["bias changed"]:
                name = "bias" if note["bias changed"] and not note["larger"] else "weight"
                text = (
                    f"the parameter `{name}` is a view of the {name} that was given, and keeps its memory; a change of "
                )
                return Finding(
                    "DTL-VALUE-VIEW", f"{text}one is one of the other ({title_of(job)}): clone() copies", rank
                )
            if note["held"]:
                text = f"the whole weight is still in memory on rank {rank} when the caller has dropped it: the module "
                text += f"refers to it, or keeps a copy ({title_of(job)}). Keep the part only"
                return Finding("DTL-RULE-WHOLE-HELD", text, rank)
    return None


def _others_g(given: Given, got: list[Any]) -> Finding | None:
    for rank, notes in enumerate(got):
        called = [note["calls"] for job, note in zip(given[rank]["jobs"], notes, strict=True) if job["xs"]]
        if not any(called[:-1]) and sum(called) and len(called) > 1:
            text = (
                f"all layers of rank {rank} call the g of the layer that was made last: it belongs to its layer, not "
            )
            return Finding("DTL-VALUE-LAST-GROUP", f"{text}to the class or the module", rank)
    return None


def _calls(given: Given, got: list[Any]) -> Finding | None:
    """Whether g was called once in each forward pass."""
    for rank, notes in enumerate(got):
        for job, note in zip(given[rank]["jobs"], notes, strict=True):
            if job["xs"] and len(job["group"]) > 1 and note["calls"] != len(job["xs"]):
                text = (
                    f"rank {rank} called g {note['calls']} times in {len(job['xs'])} forward passes ({title_of(job)}): "
                )
                return Finding("DTL-RULE-MESSAGES", f"{text}once in each is asked, and no other communication", rank)
    return None


def _refused(given: Given, got: list[Any]) -> Finding | None:
    """Whether features that the ranks do not divide are an error that names both numbers."""
    for rank, notes in enumerate(got):
        size, t, note = given[rank]["jobs"][-1]["weight"].shape[1], len(given[rank]["jobs"][-1]["group"]), notes[-1]
        where = f"{t} ranks do not divide {size} input features"
        if found := refusal(note, where, size, t, rank):
            return found
    return None


def why(case: Case, given: Given, record: Record) -> str:
    text = (
        f"{MAY_HELP}the input features are dim 1 of a weight (out, in), and x has this rank's part of them already; a "
    )
    return f"{text}group may have fewer ranks than the job"


_VALUES = Check(on_rank, inputs, expected, mistakes=mistakes)
_NO_CALLS = rules.most_messages("0")
CHECK = CheckOfMemory(
    on_rank, inputs, None, verify=verify, why=why, rules=[_NO_CALLS], reads=[no_stores], stress=Stress(poison=True)
)
