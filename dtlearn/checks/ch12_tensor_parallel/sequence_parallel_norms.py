"""ch12.sequence_parallel_norms: models with marked and unmarked norms, marked biases and matrices, a norm used twice,
one not used, and a model without marks.

All gradients differ from rank to rank, so whatever is added up, or is not, shows.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from dtlearn.grading import Case, Check, Finding, Given, Stress
from dtlearn.runtime.record.record import Record

from ..rounded import rounded_in_messages, rounded_to_float32
from ..sent import no_silent_rank, no_stores
from . import MAY_HELP
from .ways.gradients import HAS_FALSE, MARKS, SHAPES, UNUSED, WAYS, play_of
from .ways.groups import GROUPS, by_rank, first_mistake, with_all

_DTYPES = (("float32", "float64"), ("float64", "float64"), ("float32", "float32"))  # of each job: in general, of norm


def inputs(case: Case) -> Given:
    g, n = case.generator(), case.world_size
    given: Given = [{"jobs": []} for _ in range(n)]
    for (title, groups), (dtype, of_norm), marked in zip(GROUPS[n], _DTYPES, MARKS, strict=True):
        for rank in range(n):
            gradients = {
                name: torch.randn(shape, generator=g, dtype=torch.float64).to(
                    getattr(torch, of_norm if name.startswith("norm") else dtype)
                )
                for name, shape in SHAPES.items()
            }
            if rank == n - 1:
                gradients["position"].zero_()  # it is a part of the sum all the same
            job = {"title": title, "members": [list(one) for one in groups], "gradients": gradients}
            given[rank]["jobs"].append(
                {**job, "dtype": dtype, "of_norm": of_norm, "marked": marked, "has_false": HAS_FALSE}
            )
    return given


def on_rank(answer: Any, jobs: Any) -> Any:
    from dtlearn.grading.on_rank.same_on_all import same_on_all_ranks

    notes: Any = []
    nn = torch.nn
    for job in jobs:
        group = None
        for members in job["members"]:
            made = dist.new_group(members)
            group = made if dist.get_rank() in members else group
        model: Any = nn.Module()
        model.position = nn.Parameter(torch.zeros(3, 4))
        model.norm, model.attention = nn.LayerNorm(4), nn.Module()
        model.attention.norm = nn.LayerNorm(2)
        model.up, model.blocks = nn.Linear(4, 3), nn.ModuleList([nn.Module()])
        model.blocks[0].down = nn.Linear(3, 4)
        model.final_norm, model.second_use, model.spare_norm = nn.RMSNorm(4), nn.RMSNorm(4), nn.LayerNorm(4)
        model.to(getattr(torch, job["dtype"]))
        model.norm.to(getattr(torch, job["of_norm"]))
        model.second_use.weight = model.final_norm.weight
        parameters: Any = dict(model.named_parameters())
        for name in job["has_false"]:
            parameters[name].sequence_parallel = False
        for name in (*job["marked"], "spare_norm.weight", "spare_norm.bias"):
            parameters[name].sequence_parallel = True
        before = {name: parameter.detach().clone() for name, parameter in parameters.items()}
        marks = {name: getattr(parameter, "sequence_parallel", None) for name, parameter in parameters.items()}
        for name, gradient in job["gradients"].items():
            parameters[name].grad = gradient.clone()
        returned = answer(model, group)
        now = dict(model.named_parameters())
        moved = list(now) != list(before) or any(not torch.equal(now[name], before[name]) for name in before)
        moved = moved or any(getattr(now[name], "sequence_parallel", None) != mark for name, mark in marks.items())
        gradients = {name: parameter.grad for name, parameter in parameters.items()}
        plain = nn.Linear(2, 2)  # nothing is marked
        plain.weight.grad = torch.full((2, 2), dist.get_rank() + 1.0)
        answer(plain, group)
        plain_moved = bool((plain.weight.grad != dist.get_rank() + 1.0).any())
        note = {"gradients": gradients, "moved": moved, "returned": returned is not None, "plain_moved": plain_moved}
        notes.append(note)
        # The same on all ranks, though other groups have other data: later the ranks would wait for one that is alone.
        if len(notes) < len(jobs) and same_on_all_ranks(gradients["norm.weight"]) and job["members"]:
            return notes
    return notes


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    named: list[dict[str, Any]] = [{} for _ in given]
    for rank, (i, notes) in enumerate(zip(given, got, strict=True)):
        for job, note in zip(i["jobs"], notes, strict=False):  # fewer notes if groups are ignored
            if note["moved"]:
                text = f"{job['title']}: rank {rank} changed a parameter or its mark; only its .grad may change"
                return Finding("DTL-VALUE-PARAMETERS", text, rank)
            if any(note["gradients"][name] is not None for name in UNUSED):
                text = (
                    f"{job['title']}: rank {rank} gave a parameter a .grad that had None: the optimizer would leave it "
                )
                return Finding(
                    "DTL-VALUE-GRADIENT-MADE", f"{text}out, and now moves it by weight decay or momentum", rank
                )
            named[rank][job["title"]] = note["gradients"]
    ways = [(code, text, play_of(way)) for code, text, way in WAYS]
    right = [{title: of[title] for title in own} for of, own in zip(_expected(case, given), named, strict=True)]
    if found := first_mistake(_VALUES, case, given, named, ways):
        return rounded_in_messages(found, right, named, record)
    for rank, notes in enumerate(got):
        if any(note["plain_moved"] for note in notes):
            text = f"rank {rank} changed a gradient of a model where nothing is marked: all of them are complete"
            return Finding("DTL-VALUE-COMPLETE-SUMMED", text, rank)
    return rounded_to_float32(right, named)


def why(case: Case, given: Given, record: Record) -> str:
    text = (
        "a parameter's .grad may be None; most parameters have no attribute sequence_parallel; gradients of one model "
    )
    return f"{MAY_HELP}{text}may have two dtypes and several shapes, and a model may have nothing that is marked"


def _bytes(job: dict[str, Any]) -> int:
    return sum(job["gradients"][name].numel() * job["gradients"][name].element_size() for name in job["marked"])


def _messages(case: Case) -> int:
    """One for each dtype of each model."""
    return sum(len({*dtypes}) for dtypes in _DTYPES)


def _least_calls(case: Case, given: Given) -> int:
    return sum(min(len(g) for g in with_all(job["members"], case.world_size)) > 1 for job in given[0]["jobs"])


def _expected(case: Case, given: Given) -> list[dict[str, Any]]:
    return by_rank(given, play_of(WAYS[0][2]))


_VALUES = Check(on_rank, inputs, _expected, rtol=1e-5, atol=1e-6, stress=Stress(poison=True))
CHECK = Check(
    on_rank,
    inputs,
    None,
    verify=verify,
    why=why,
    calls=_messages,
    payload=lambda case, given: round(sum(map(_bytes, given[0]["jobs"])) / _messages(case)),
    rules=[no_silent_rank(least_calls=_least_calls)],
    reads=[no_stores],
    stress=Stress(poison=True),
)
