"""ch12.f_and_g: the two by themselves, with gradients of several strides, and in a layer beside the whole one.

All pairs are made before the first is used: what one keeps, another must not change.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist

from dtlearn.grading import Case, Check, Finding, Given, Mistake, Stress, compare
from dtlearn.runtime.record.record import Record

from ..marks import steps_of
from ..rounded import rounded_in_messages
from ..sent import no_stores
from . import MAY_HELP
from .ways.pairs import WAYS, Way, hooked, layers, play, title_of

# By world size: into which groups the ranks are divided, in each of these ways.
_GROUPS: dict[int, list[list[list[int]]]] = {
    2: [[[0, 1]], [[0], [1]]],
    4: [[[0, 1], [2, 3]], [[0, 2], [1, 3]], [[0], [1, 2, 3]]],
}
_RUNS = ("f", "g", "f and a sum", "g of other strides", "f twice", "g twice", "other shapes", "no gradients", "a layer")
# Calls in forward and in backward.
_CALLS = {"f": (0, 1), "f and a sum": (0, 1), "f twice": (0, 2), "g": (1, 0), "g of other strides": (1, 0)}
_CALLS |= {"g twice": (2, 0), "other shapes": (1, 1), "no gradients": (1, 0), "a layer": (1, 1)}
_SHAPE = (3, 4)


def inputs(case: Case) -> Given:
    g, n = case.generator(), case.world_size

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(shape, dtype=dtype, generator=g)

    given: Given = [{"jobs": []} for _ in range(n)]
    for number, groups in enumerate(_GROUPS[n]):
        dtype = (torch.float64, torch.float32)[number % 2]
        for group in groups:
            whole = {"h": random(*_SHAPE), "dh": random(*_SHAPE)}
            for rank in group:
                own = {name: random(*_SHAPE) for name in ("x", "dy", "dz")}
                own |= {"a": random(2, 4), "b": random(4, 2), "factor": 1.5 + random().abs()}
                given[rank]["jobs"].append({"runs": [*_RUNS], "groups": groups, "group": group, **whole, **own})
    return given


def on_rank(answer: Any, jobs: Any) -> Any:
    from dtlearn.runtime.rank.task import mark

    made: Any = {}
    pairs: Any = []
    for job in jobs:
        for group in job["groups"]:
            if str(group) not in made:
                made[str(group)] = dist.new_group(group)
        pair = answer(made[str(job["group"])])
        if not (isinstance(pair, tuple | list) and len(pair) == 2 and callable(pair[0]) and callable(pair[1])):
            raise TypeError(f"a tuple of two functions is asked; returned was {type(pair).__name__}")
        pairs.append(pair)

    def forward_of(run: str) -> Any:
        """What is run forward: outputs, then leaves, then the gradients of the outputs."""
        x = job["x"].clone().requires_grad_()
        if run in ("f", "g"):
            return [(f if run == "f" else g)(x)], [x], [job["dy"].clone()]
        if run == "f and a sum":  # its gradient has the strides 0
            return [f(x).sum() * job["factor"]], [x], [torch.ones_like(job["factor"])]
        if run == "g of other strides":
            turned = x.mT
            return [g(turned)], [x], [job["dy"].mT]
        if run == "f twice":  # and what comes first has its backward pass last
            other = job["h"].clone().requires_grad_()
            return [f(x), f(other)], [x, other], [job["dy"].clone(), job["dz"].mT.contiguous().mT]
        if run == "g twice":  # what it returned first must stay
            other = job["h"].clone().requires_grad_()
            return [g(x), g(other)], [x, other], [job["dy"].clone(), job["dz"].clone()]
        if run == "other shapes":
            other = job["h"].clone().requires_grad_()
            outputs = [f(x.reshape(-1)), g(other.reshape(2, 3, -1))]
            return outputs, [x, other], [job["dy"].reshape(-1).clone(), job["dz"].reshape(2, 3, -1).clone()]
        if run == "no gradients":
            with torch.no_grad():
                return [f(job["x"]), g(job["x"])], [], []
        x = job["h"].clone().requires_grad_()
        a, b = job["a"].clone().requires_grad_(), job["b"].clone().requires_grad_()
        return [x + g(torch.tanh(f(x) @ a.T) @ b.T)], [x, a, b], [job["dh"].clone()]

    notes: Any = []
    for number, job in enumerate(jobs):
        f, g = pairs[number]
        for run in job["runs"]:
            where = f"(run '{run}', a group of the ranks {job['group']}; this is rank {rank})"  # type: ignore[name-defined] # noqa: F821
            try:
                mark("forward")
                outputs, leaves, gradients = forward_of(run)
                befores = [one.detach().clone() for one in gradients]
                kept = [one.detach().clone() for one in outputs]
                mark("backward")
                for output, gradient in [*zip(outputs, gradients, strict=False)][::-1]:
                    if output.requires_grad:
                        output.backward(gradient)
            except (RuntimeError, TypeError, ValueError, AttributeError, IndexError) as error:
                if not isinstance(error, NotImplementedError):
                    error.args = (f"{' '.join(str(error).split()).rstrip('.')} {where}",)
                raise
            starts = [job["h"]] if run == "a layer" else [job["x"], job["h"]][: len(leaves)]
            note = {
                "outputs": kept,
                "gradients": [None if leaf.grad is None else leaf.grad.clone() for leaf in leaves],
                "inputs as before": all(map(torch.equal, leaves, starts)),
                "gradients as before": all(map(torch.equal, gradients, befores)),
            }
            notes.append(note)
            if not (note["inputs as before"] and note["gradients as before"]):
                return notes  # an all-reduce in the place of a gradient with strides of 0 would end the process
        # Sums over all ranks in place of the group: a later group, of one rank, would leave the others waiting for it.
        sums = torch.stack([job["x"], job["dy"]])
        dist.all_reduce(sums)
        of_f, of_g = notes[-len(job["runs"])]["gradients"][0], notes[1 - len(job["runs"])]["outputs"][0]
        wrong = torch.tensor(0)
        for mine, over_all in ((of_g, sums[0]), (of_f, sums[1])):
            if len(job["group"]) < world_size and mine is not None and mine.shape == over_all.shape:  # type: ignore[name-defined] # noqa: F821
                wrong |= int(torch.allclose(mine.double(), over_all.double(), rtol=1e-3, atol=1e-4))
        dist.all_reduce(wrong, op=dist.ReduceOp.MAX)
        if wrong:
            return notes
    return notes


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    return [own | layer for own, layer in zip(play(given, Way()), layers(given), strict=True)]


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    named: list[dict[str, Any]] = [{} for _ in given]
    for rank, notes in enumerate(got):
        runs = [(job, run) for job in given[rank]["jobs"] for run in _RUNS]
        for (job, run), note in zip(runs, notes, strict=False):  # fewer notes if a tensor was changed
            title = f"{run}, {title_of(job)}"
            named[rank][title] = {name: note[name] for name in ("outputs", "gradients")}
            if not note["inputs as before"]:
                text = f"what was given in forward has changed on rank {rank} ({title}): dist.all_reduce works in place"
                return Finding("DTL-VALUE-IN-PLACE", f"{text}; give it a clone", rank)
            if not note["gradients as before"]:
                text = f"the gradient that was given in backward has changed on rank {rank} ({title}): autograd may "
                text += "hand the same tensor to another branch, and dist.all_reduce works in place; give it a clone"
                return Finding("DTL-VALUE-IN-PLACE", text, rank)
    done = min(map(len, got)) // len(_RUNS)
    if 0 < done < len(given[0]["jobs"]):  # `on_rank` has seen that what follows would fail, too
        first = [{"jobs": own["jobs"][:done]} for own in given]
        return _compare(case, first, named, record) or _compare(case, given, named, record)
    return _compare(case, given, named, record)


def _compare(case: Case, given: Given, named: list[dict[str, Any]], record: Record) -> Finding | None:
    # The two by themselves come first: they tell more than the layer.
    alone = [{title: v for title, v in own.items() if not title.startswith("a layer")} for own in named]
    right = play(given, Way())
    if found := compare(_ALONE, case, given, right, alone):
        return rounded_in_messages(found, right, alone, record)
    return compare(_LAYER, case, given, expected(case, given), named)


def mistakes(case: Case, given: Given) -> list[Mistake]:
    return [Mistake(f"DTL-VALUE-{code}", text, play(given, way)) for code, text, way in WAYS]


def why(case: Case, given: Given, record: Record) -> str:
    text = f"{MAY_HELP}a gradient may not be contiguous, and .sum() gives one whose elements are all the same place in "
    text += (
        "memory (clone(memory_format=torch.contiguous_format)); what torch.distributed does has no backward pass of "
    )
    return f"{text}its own"


def _exactly(case: Case, given: Given, record: Record) -> Finding | None:
    """The calls that are asked, and no more bytes than a tensor has in each."""
    marked = steps_of(record, "forward backward", [len(_RUNS) * len(own["jobs"]) for own in given])
    if isinstance(marked, Finding):
        return marked
    for rank, own in enumerate(given):
        calls = record.select(rank=rank).events
        spans = pairwise([*(mark.came_ns for step in marked[rank] for mark in step), math.inf])
        for job in own["jobs"]:
            for run in _RUNS:
                for direction, wanted in zip(("forward", "backward"), _CALLS[run], strict=True):
                    begin, end = next(spans)
                    events = [e for e in calls if begin <= e.start_ns < end]
                    is_alone = len(job["group"]) == 1
                    if len(events) == wanted or (is_alone and len(events) < wanted):
                        n = job["x"].numel() * job["x"].element_size()
                        nbytes = sum(e.nbytes for e in events)
                        if nbytes == n * len(events):
                            continue
                        text = (
                            f"rank {rank} hands over {nbytes} bytes in the {direction} pass ({run}, {title_of(job)}); "
                        )
                        text += f"the tensor{'s have' if wanted > 1 else ' has'} {n * wanted}"
                        text += ": were the numbers rounded to a shorter dtype?" * (nbytes < n * wanted)
                        return Finding("DTL-RULE-BYTES", text, rank, events[0].line or None)
                    made = ", ".join(f"{e.op} on line {e.line}" for e in events) or "none"
                    text = (
                        f"{wanted or 'no'} call{'s' * (wanted != 1)} belong{'s' * (wanted == 1)} into the {direction} "
                    )
                    text += f"pass of the run '{run}'; rank {rank} made {len(events)}: {made} ({title_of(job)})"
                    code = "DTL-RULE-MESSAGES" if len(events) > wanted else "DTL-RULE-CALLS"
                    return Finding(code, text, rank, events[0].line or None if events else None)
    return None


_ALONE = Check(on_rank, inputs, expected, mistakes=mistakes, stress=Stress(poison=True))
_LAYER = Check(
    on_rank,
    inputs,
    expected,
    mistakes=lambda case, given: [hooked(given, expected(case, given))],
    stress=Stress(poison=True),
)
CHECK = Check(
    on_rank, inputs, None, verify=verify, why=why, rules=[_exactly], reads=[no_stores], stress=Stress(poison=True)
)
