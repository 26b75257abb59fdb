"""ch12.row_parallel: layers with and without a bias, on groups of several sizes, for two micro-batches each.

The function g is the check's own. The whole layer runs in the judge.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F

from dtlearn.grading import Case, Check, Finding, Given, Mistake, Stress, compare, rules
from dtlearn.runtime.record.record import Record
from dtlearn.runtime.words import listed

from ..sent import no_stores
from . import MAY_HELP

_PAIR, _ONES, _HALVES, _ALL, _UNEVEN = [[0, 1]], [[0], [1]], [[0, 2], [1, 3]], [[0, 1, 2, 3]], [[0], [1, 2, 3]]
# By world size: groups, features of a rank and of the output, the shape before them, whether there is a bias.
_LAYERS: dict[int, tuple[tuple[list[list[int]], int, int, tuple[int, ...], bool], ...]] = {
    2: ((_PAIR, 3, 4, (5,), True), (_PAIR, 2, 3, (2, 3), False), (_ONES, 4, 3, (2,), True)),
    4: ((_ALL, 2, 3, (2, 2), True), (_HALVES, 3, 2, (4,), True), (_UNEVEN, 2, 4, (3, 1), True)),
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

    made: Any = {}
    notes: Any = []
    for job in jobs:
        for members in job["groups"]:
            if str(members) not in made:
                made[str(members)] = dist.new_group(members)
        group, calls = made[str(job["group"])], [0]

        def g(x: Any, group: Any = group, calls: Any = calls) -> Any:
            calls[0] += 1
            return AddUp.apply(x, group)

        shape = tuple(job["weight"].shape)
        where = f"(a weight {shape}, a group of the ranks {job['group']}; this is rank {rank})"  # type: ignore[name-defined] # noqa: F821
        array = job["weight"].mT.contiguous().numpy().copy()
        alive, weight = weakref.ref(array), torch.from_numpy(array).mT
        bias = None if job["bias"] is None else job["bias"].clone()
        try:
            layer = answer(weight, bias, group, g)
            if not job["xs"]:
                notes.append({"raised": ""})
                continue
            own = layer.weight
            parameters = {name: p.detach().clone() for name, p in layer.named_parameters()}
            xs = [x.mT.contiguous().mT.requires_grad_() for x in job["xs"]]
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
            note["changed"] = not torch.equal(weight, job["weight"])
            note["bias changed"] = bias is not None and not torch.equal(bias, job["bias"])
            del array, weight
            if alive() is not None:
                gc.collect()
            note["held"] = alive() is not None
            kept_by = [*vars(layer).values(), *layer.buffers()] if len(job["group"]) > 1 else []  # copies, too
            note["held"] |= any(
                isinstance(one, torch.Tensor) and one.numel() >= job["weight"].numel() for one in kept_by
            )
            notes.append(note)
        except (RuntimeError, TypeError, ValueError, AttributeError, IndexError, AssertionError) as error:
            if isinstance(error, NotImplementedError) or job["xs"]:
                error.args = (f"{' '.join(str(error).split()).rstrip('.')} {where}",)
                raise
            notes.append({"raised": type(error).__name__, "text": str(error)})
    return notes


@dataclass(frozen=True)
class Way:
    """How a layer is made.

    Attributes:
        columns: of which columns the weight is: "own", "job" (by the number in the job), "dealt" (in turn).
        summed: what is made of the partial sums: "sum", "own", "mean".
        bias: "once", "before" (added before the sum), "divided" (by the ranks, before it), "first" (on the first rank
            only, before it), "rank 0" (on that of the job), "zeros" (as "first", with gradients of 0 on the others),
            "after" (as "first", after the sum), "frozen" (without a gradient), "none" (not added).
    """

    columns: str = "own"
    summed: str = "sum"
    bias: str = "once"


_PARTS: tuple[tuple[str, str, Way], ...] = (
    (
        "GROUP-IGNORED",
        "the weight's columns are those of the rank's number in the job; its place in the group counts: "
        "dist.get_rank(group)",
        Way(columns="job"),
    ),
    ("DEALT-OUT", "the weight's columns are dealt out in turn; they have to be contiguous", Way(columns="dealt")),
)
_WAYS: tuple[tuple[str, str, Way], ...] = (
    (
        "BIAS-TIMES",
        "the bias counts once for each rank of the group: it is added before g, which adds it up (add it after g)",
        Way(bias="before"),
    ),
    (
        "BIAS-DIVIDED",
        "the bias is divided by the number of ranks before g: the output is right, the bias's gradient is divided "
        "too (add the whole bias after g)",
        Way(bias="divided"),
    ),
    (
        "BIAS-ONE-RANK",
        "the bias is added on the first rank of the group only: the output is right, but on the other ranks the bias "
        "has no gradient, and their copies stay as they are (add it on all ranks, after g)",
        Way(bias="first"),
    ),
    (
        "BIAS-ONE-RANK",
        "the bias is added on the first rank of the group only: the output is right, but on the other ranks the "
        "bias's gradient is 0, and their copies stay as they are (add it on all ranks, after g)",
        Way(bias="zeros"),
    ),
    (
        "BIAS-ONE-RANK",
        "the bias is added on rank 0 of the job only: other groups have none, and on other ranks it has no gradient "
        "(add it on all ranks, after g)",
        Way(bias="rank 0"),
    ),
    (
        "BIAS-ONE-RANK",
        "the bias is added after g on the first rank of the group only: the output has to be the same on all ranks",
        Way(bias="after"),
    ),
    ("BIAS-FORGOTTEN", "the bias is not added", Way(bias="none")),
    ("BIAS-FROZEN", "the bias is added and has no gradient: is it cut off from autograd?", Way(bias="frozen")),
    (
        "PARTIAL-SUM",
        "the output is this rank's partial sum, with the bias: g adds up those of all ranks",
        Way("own", "own"),
    ),
    ("AVERAGED", "the partial sums are averaged over the ranks: they have to be added up", Way("own", "mean")),
)


def _play(given: Given, way: Way) -> list[dict[str, Any]]:
    """By rank: of each layer, its parameters, outputs and gradients."""
    made: list[dict[str, Any]] = [{} for _ in given]
    for number, first in enumerate(given[0]["jobs"]):
        for group in first["groups"] if first["xs"] else ():
            for rank in group:
                made[rank][_title(given[rank]["jobs"][number])] = _layer(given, number, group, rank, way)
    return made


def _layer(given: Given, number: int, group: list[int], rank: int, way: Way) -> dict[str, Any]:
    jobs, t, place = [given[r]["jobs"][number] for r in group], len(group), group.index(rank)
    job, weight = jobs[place], jobs[0]["weight"].double()
    k = weight.shape[1] // t
    start = (rank % t if way.columns == "job" else place) * k
    part = weight[:, place::t] if way.columns == "dealt" else weight[:, start : start + k]
    bias = torch.zeros(len(weight)).double() if job["bias"] is None else job["bias"].double()
    times = {"before": t, "none": 0, "rank 0": 0 in group, "after": not place}.get(way.bias, 1)
    outputs, dxs, dw, db = [], [], torch.zeros_like(part), torch.zeros_like(bias)
    factor = 1 / t if way.summed == "mean" else 1
    for m, dy in enumerate(job["dys"]):
        x, dy = job["xs"][m].double(), dy.double()
        total = F.linear(torch.cat([one["xs"][m] for one in jobs], -1).double(), weight)
        total = F.linear(x, part) if way.summed == "own" else total
        outputs.append(total * factor + bias * times)
        dxs.append(dy @ part * factor)
        dw += dy.flatten(0, -2).T @ x.flatten(0, -2) * factor
        db += dy.flatten(0, -2).sum(0) / (t if way.bias == "divided" else 1)
    db = db * 0 if way.bias == "zeros" and place else db
    without = (
        way.bias in ("none", "frozen") or (way.bias in ("first", "after") and place) or (way.bias == "rank 0" and rank)
    )
    cast = lambda tensor: tensor.to(job["weight"].dtype)  # noqa: E731
    named: dict[str, Any] = {"parameters": {"weight": cast(part)}, "outputs": [cast(y) for y in outputs]}
    named |= {"dx": [cast(dx) for dx in dxs], "gradients": {"weight": cast(dw)}}
    if job["bias"] is not None:
        named["parameters"]["bias"], named["gradients"]["bias"] = job["bias"], None if without else cast(db)
    return named


def _title(job: dict[str, Any]) -> str:
    group, bias = job["group"], "" if job["bias"] is None else " and a bias"
    return f"a weight {tuple(job['weight'].shape)}{bias}, rank{'s' * (len(group) > 1)} {listed(group)}"


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    return _play(given, Way())


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    right, named = _play(given, Way()), [dict[str, Any]() for _ in given]
    for rank, notes in enumerate(got):
        for job, note in zip(given[rank]["jobs"], notes, strict=True):
            if job["xs"]:
                keys = ("parameters", "outputs", "dx", "gradients")
                named[rank][_title(job)] = {key: note[key] for key in keys}
    only = lambda values: [{t: {"parameters": v["parameters"]} for t, v in own.items()} for own in values]  # noqa: E731
    cuts = [Mistake(f"DTL-VALUE-{code}", text, only(_play(given, way))) for code, text, way in _PARTS]
    parts = replace(_VALUES, mistakes=lambda *_: cuts)
    if found := compare(parts, case, given, only(right), only(named)) or _memory(given, got):
        return found
    return compare(_VALUES, case, given, right, named) or _calls(given, got) or _refused(given, got)


def mistakes(case: Case, given: Given) -> list[Mistake]:
    return [Mistake(f"DTL-VALUE-{code}", text, _play(given, way)) for code, text, way in _WAYS]


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
                return Finding("DTL-VALUE-VIEW", f"{text}one is one of the other ({_title(job)}): clone() copies", rank)
            if note["held"]:
                text = f"the whole weight is still in memory on rank {rank} when the caller has dropped it: the module "
                return Finding("DTL-RULE-WHOLE-HELD", f"{text}refers to it ({_title(job)}). Keep the part only", rank)
    return None


def _calls(given: Given, got: list[Any]) -> Finding | None:
    """Whether g was called once in each forward pass."""
    for rank, notes in enumerate(got):
        for job, note in zip(given[rank]["jobs"], notes, strict=True):
            if job["xs"] and len(job["group"]) > 1 and note["calls"] != len(job["xs"]):
                text = (
                    f"rank {rank} called g {note['calls']} times in {len(job['xs'])} forward passes ({_title(job)}): "
                )
                return Finding("DTL-RULE-MESSAGES", f"{text}once in each is asked, and no other communication", rank)
    return None


def _refused(given: Given, got: list[Any]) -> Finding | None:
    """Whether features that the ranks do not divide are an error that names both numbers."""
    for rank, notes in enumerate(got):
        size, t, note = given[rank]["jobs"][-1]["weight"].shape[1], len(given[rank]["jobs"][-1]["group"]), notes[-1]
        where = f"{t} ranks do not divide {size} input features"
        if note["raised"] != "ValueError":
            what = f"{note['raised']} was raised" if note["raised"] else "nothing was raised"
            return Finding("DTL-VALUE-UNCHECKED", f"{where}; a ValueError is asked, and {what}", rank)
        words = "".join(c if c.isdigit() else " " for c in note["text"]).split()
        if missing := [n for n in (size, t) if str(n) not in words]:
            text = f"{where}; the message of the ValueError has to name both numbers, and {missing[0]} is not in it"
            return Finding("DTL-VALUE-ERROR-TEXT", text, rank)
    return None


def why(case: Case, given: Given, record: Record) -> str:
    text = (
        f"{MAY_HELP}the input features are dim 1 of a weight (out, in), and x has this rank's part of them already; a "
    )
    return f"{text}group may have fewer ranks than the job"


_VALUES = Check(on_rank, inputs, expected, mistakes=mistakes)
_NO_CALLS = rules.most_messages("0")
CHECK = Check(
    on_rank, inputs, None, verify=verify, why=why, rules=[_NO_CALLS], reads=[no_stores], stress=Stress(poison=True)
)
