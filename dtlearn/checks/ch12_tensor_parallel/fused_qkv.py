"""ch12.fused_qkv: several numbers of heads, on groups of several sizes, for two batches each.

All layers are made before the first is used, and the second batch has more tokens than the first.

The functions f and g are the check's own. What is computed is in `ways.heads`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist

from dtlearn.grading import Case, Check, Finding, Given, Mistake, Stress, compare, rules
from dtlearn.runtime.record.record import Record
from dtlearn.runtime.words import listed

from ..sent import no_stores
from . import MAY_HELP
from .ways.heads import CUTS, RUNS, Way, play, weights_of
from .ways.held import CheckOfMemory, holds
from .ways.refusals import refusal

_PAIR, _ONES, _HALVES, _ALL, _UNEVEN = [[0, 1]], [[0], [1]], [[0, 2], [1, 3]], [[0, 1, 2, 3]], [[0], [1, 2, 3]]
# By world size: groups, H, K, D.
_MODELS: dict[int, tuple[tuple[list[list[int]], int, int, int], ...]] = {
    2: ((_PAIR, 4, 4, 3), (_PAIR, 8, 2, 3), (_ONES, 4, 2, 2)),
    4: ((_ALL, 4, 4, 2), (_HALVES, 12, 4, 3), (_UNEVEN, 6, 3, 2)),
}
_REFUSED = {2: (_PAIR, 6, 3, 2), 4: (_ALL, 8, 2, 2)}  # the ranks divide H, or the thirds, but not K
_DTYPES = (torch.float64, torch.float32, torch.float64)
_BATCHES = ((2, 3), (1, 5))


def inputs(case: Case) -> Given:
    g, n = case.generator(), case.world_size
    given: Given = [{"jobs": []} for _ in range(n)]
    for number, (groups, heads, kv_heads, size) in enumerate((*_MODELS[n], _REFUSED[n])):
        dtype, features = (*_DTYPES, torch.float32)[number], heads * size

        def random(*shape: int, dtype: torch.dtype = dtype) -> torch.Tensor:
            return torch.randn(shape, dtype=dtype, generator=g)

        for group in groups:
            job: dict[str, Any] = {"groups": groups, "group": group, "num_heads": heads, "num_kv_heads": kv_heads}
            job |= {"head_size": size, "fits": number < len(_MODELS[n])}
            job |= {"qkv": random((heads + 2 * kv_heads) * size, features) * 0.4}
            job["output"] = random(features, features) * 0.4
            job |= {name: [random(*shape, features) for shape in _BATCHES] for name in ("xs", "dys")}
            for rank in group:
                cut = weights_of(job, rank, Way()) if job["fits"] else ()
                shapes, sums = [list(w.shape) for w in cut], [_sum(w) for w in cut]
                given[rank]["jobs"].append(job | {"shapes": shapes, "sums": sums})
    return given


def _sum(weight: torch.Tensor) -> float:
    """A number that tells whether a weight is right, and not what it is."""
    return float((weight.double().flatten() * torch.arange(weight.numel())).sum())


def on_rank(answer: Any, jobs: Any) -> Any:
    import gc
    import weakref

    class Sum(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, group: Any, in_forward: bool) -> Any:
            ctx.group = None if in_forward else group
            x = x.clone(memory_format=torch.contiguous_format)
            if in_forward:
                dist.all_reduce(x, group=group)
            return x

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            if ctx.group is not None:
                gradient = gradient.clone(memory_format=torch.contiguous_format)
                dist.all_reduce(gradient, group=ctx.group)
            return gradient, None, None

    def where_of(job: Any) -> str:
        at = f"a group of the ranks {job['group']}; this is rank {rank}"  # type: ignore[name-defined] # noqa: F821
        return f"(H = {job['num_heads']}, K = {job['num_kv_heads']}, D = {job['head_size']}, {at})"

    made: Any = {}
    notes: Any = []
    layers: Any = []
    for job in jobs:
        for members in job["groups"]:
            if str(members) not in made:
                made[str(members)] = dist.new_group(members)
        group, calls = made[str(job["group"])], {"f": 0, "g": 0}

        def f(x: Any, group: Any = group, calls: Any = calls) -> Any:
            calls["f"] += 1
            return Sum.apply(x, group, False)

        def g(x: Any, group: Any = group, calls: Any = calls) -> Any:
            calls["g"] += 1
            return Sum.apply(x, group, True)

        arrays = [job["qkv"].numpy().copy(), job["output"].numpy().copy()]
        alive = [weakref.ref(array) for array in arrays]
        qkv, output = (torch.from_numpy(array) for array in arrays)
        try:
            layer = answer(qkv, output, job["num_heads"], job["num_kv_heads"], group, f, g)
            layers.append((layer, arrays, alive, qkv, output, calls, group))
            refused: Any = {"raised": ""}
        except (RuntimeError, TypeError, ValueError, AttributeError, IndexError, AssertionError) as error:
            if isinstance(error, NotImplementedError) or job["fits"]:
                error.args = (f"{' '.join(str(error).split()).rstrip('.')} {where_of(job)}",)
                raise
            refused = {"raised": type(error).__name__, "text": str(error)}
    del arrays, qkv, output, layer
    layers.reverse()
    for job in jobs[:-1]:
        layer, arrays, alive, qkv, output, calls, group = layers.pop()
        try:
            parameters = {name: p.detach().clone() for name, p in layer.named_parameters()}
            # With other weights than those asked for a forward pass would end in an exception that hides the cause.
            right = torch.tensor(all("outputs" in note for note in notes)).float()
            for name, shape, total in zip(("qkv", "output"), job["shapes"], job["sums"], strict=True):
                p = parameters.get(name, torch.zeros(0))
                made_of = float((p.double().flatten() * torch.arange(p.numel())).sum())
                right *= list(p.shape) == shape and abs(made_of - total) < 1e-6
            dist.all_reduce(right, dist.ReduceOp.MIN, group=group)
            if not right:
                notes.append({"parameters": parameters})
                continue
            xs = [x.clone().requires_grad_() for x in job["xs"]]
            outputs = [layer(x) for x in xs]
            kept = [y.detach().clone() for y in outputs]
            for y, dy in zip(outputs, job["dys"], strict=True):
                y.backward(dy.clone())
            note: dict[str, Any] = {
                "parameters": parameters,
                "outputs": kept,
                "dx": [None if x.grad is None else x.grad.clone() for x in xs],
                "gradients": {n: None if p.grad is None else p.grad.clone() for n, p in layer.named_parameters()},
                "calls": calls,
            }
            with torch.no_grad():
                for p in layer.parameters():
                    p.add_(1)
            note["changed"] = not (torch.equal(qkv, job["qkv"]) and torch.equal(output, job["output"]))
            del arrays, qkv, output
            if any(one() is not None for one in alive):
                gc.collect()
            note["held"] = any(one() is not None for one in alive)
            note["held"] |= any(holds(job[n], parameters[n], layer, answer) for n in ("qkv", "output"))
            notes.append(note)
        except (RuntimeError, TypeError, ValueError, AttributeError, IndexError, AssertionError) as error:
            error.args = (f"{' '.join(str(error).split()).rstrip('.')} {where_of(job)}",)
            raise
    return [*notes, refused]


def _title(job: dict[str, Any]) -> str:
    sizes = f"H = {job['num_heads']}, K = {job['num_kv_heads']}, D = {job['head_size']}"
    return f"{sizes}, rank{'s' * (len(job['group']) > 1)} {listed(job['group'])}"


def _parts(given: Given, way: Way) -> list[dict[str, Any]]:
    """By rank: of each model, its parameters."""
    made: list[dict[str, Any]] = [{} for _ in given]
    for rank, own in enumerate(given):
        for job in own["jobs"]:
            if job["fits"]:
                qkv, output = weights_of(job, rank, way)
                made[rank][_title(job)] = {"qkv": qkv, "output": output}
    return made


def _values(given: Given, way: Way) -> list[dict[str, Any]]:
    """By rank: of each model, outputs and gradients."""
    made: list[dict[str, Any]] = [{} for _ in given]
    for rank, own in enumerate(given):
        for job in own["jobs"]:
            if job["fits"] and rank == job["group"][0]:
                for member, values in play(job, way).items():
                    made[member][_title(job)] = values
    return made


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    return _values(given, Way())


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    parts, named = [dict[str, Any]() for _ in given], [dict[str, Any]() for _ in given]
    for rank, notes in enumerate(got):
        for job, note in zip(given[rank]["jobs"], notes, strict=True):
            if job["fits"]:
                parts[rank][_title(job)] = note["parameters"]
                if "outputs" not in note:
                    continue
                named[rank][_title(job)] = {key: note[key] for key in ("outputs", "dx", "gradients")}
    cuts = replace(_VALUES, mistakes=lambda case, given: _mistakes(given, CUTS, _parts))
    if found := compare(cuts, case, given, _parts(given, Way()), parts):
        return found
    if any("outputs" not in note for notes in got for note in notes if "parameters" in note):
        return Finding("DTL-VALUE", "the parameters differ in their last digits from those of the whole weights")
    if found := _memory(given, got):
        return found
    found = _others_functions(given, got) or compare(_VALUES, case, given, _values(given, Way()), named)
    return found or _calls(given, got) or _refused(given, got)


def _mistakes(given: Given, ways: tuple[tuple[str, str, Way], ...], of: Any) -> list[Mistake]:
    return [Mistake(f"DTL-VALUE-{code}", text, of(given, way)) for code, text, way in ways]


def _memory(given: Given, got: list[Any]) -> Finding | None:
    """Whether the parameters have memory of their own, and nothing else has that of the whole weights."""
    for rank, notes in enumerate(got):
        for job, note in zip(given[rank]["jobs"], notes, strict=True):
            if not job["fits"]:
                continue
            if note["changed"]:
                text = "a parameter is a view of a whole weight: a change of one is one of the other, and the whole "
                return Finding("DTL-VALUE-VIEW", f"{text}weight stays in memory ({_title(job)}): clone() copies", rank)
            if note["held"]:
                text = f"a whole weight is still in memory on rank {rank} when the caller has dropped it: the module "
                return Finding("DTL-RULE-WHOLE-HELD", f"{text}refers to it or a copy ({_title(job)})", rank)
    return None


def _others_functions(given: Given, got: list[Any]) -> Finding | None:
    """Whether a layer's calls all went to the functions of the layer that was made last."""
    for rank, notes in enumerate(got):
        called = [note["calls"] for job, note in zip(given[rank]["jobs"], notes, strict=True) if job["fits"]]
        for name in ("f", "g"):
            if called and not any(one[name] for one in called[:-1]) and called[-1][name] > len(_BATCHES):
                text = f"all layers of rank {rank} call the {name} of the layer that was made last: it belongs to its "
                return Finding("DTL-VALUE-LAST-GROUP", f"{text}layer, not to the class or the module", rank)
    return None


def _calls(given: Given, got: list[Any]) -> Finding | None:
    """Whether f and g were called once in each forward pass."""
    for rank, notes in enumerate(got):
        for job, note in zip(given[rank]["jobs"], notes, strict=True):
            for name, made in note["calls"].items() if job["fits"] and len(job["group"]) > 1 else ():
                if made != len(job["xs"]):
                    text = (
                        f"rank {rank} called {name} {made} times in {len(job['xs'])} forward passes ({_title(job)}): "
                    )
                    return Finding("DTL-RULE-MESSAGES", f"{text}once in each is asked", rank)
    return None


def _refused(given: Given, got: list[Any]) -> Finding | None:
    """Whether heads that the ranks do not divide are an error that names both numbers."""
    for rank, notes in enumerate(got):
        job, note = given[rank]["jobs"][-1], notes[-1]
        size, n = job["num_kv_heads"], len(job["group"])
        where = f"{n} ranks do not divide {size} key and value heads (H = {job['num_heads']})"
        if found := refusal(note, where, size, n, rank):
            return found
    return None


def why(case: Case, given: Given, record: Record) -> str:
    text = (
        f"{MAY_HELP}the fused weight has (H + 2 K) D rows, a rank (H + 2 K) D / n of them; it has H/n and K/n heads, "
    )
    return f"{text}and dist.get_rank() without the group is the number in the job"


_VALUES = Check(
    on_rank, inputs, expected, mistakes=lambda case, given: _mistakes(given, RUNS, _values), rtol=1e-4, atol=1e-4
)
_NO_CALLS = rules.most_messages("0")
CHECK = CheckOfMemory(
    on_rank, inputs, None, verify=verify, why=why, rules=[_NO_CALLS], reads=[no_stores], stress=Stress(poison=True)
)
