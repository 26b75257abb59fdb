"""ch12.vocabulary_embedding: ids at the borders of the shards, of all ranks and of one, in groups of all sizes.

What wrong answers lead to is computed in the judge, from the lookups of each rank: `ways.rows`.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist

from dtlearn.grading import Case, Check, Finding, Given, Stress, difference
from dtlearn.runtime.record.record import Record

from ..rounded import rounded, rounded_to_float32
from ..sent import no_silent_rank, no_stores
from ..traffic import most_sent
from . import MAY_HELP
from .ways.groups import GROUPS, by_rank, first_mistake, group_of, silent_backward, with_all
from .ways.rows import WAYS, WIDTH, Way, masked, play_of

# Of each job: the shapes of the ids of its calls, which are fewer than the rows of a shard; the rows; the dtype. The
# last call has the shape of the first one and another shard: what was kept from the first one is wrong.
_CALLS = (
    (((2, 4), (3,), (2, 4)), 9, torch.float32),
    (((8,), (2, 2, 2), (8,)), 12, torch.float64),
    (((4, 2), (), (4, 2)), 10, torch.float32),
)


def inputs(case: Case) -> Given:
    g, n = case.generator(), case.world_size
    given: Given = [{"jobs": []} for _ in range(n)]
    for (title, groups), (shapes, rows, dtype) in zip(GROUPS[n], _CALLS, strict=True):
        for members in with_all(groups, n):
            t = len(members)
            borders = torch.tensor([b for r in range(t) for b in (r * rows, (r + 1) * rows - 1)])
            ids = [borders[torch.randperm(2 * t, generator=g)][torch.arange(8) % (2 * t)].reshape(shapes[0])]
            other = int(torch.randint(t, (), generator=g)) * rows  # all ids of the second call are of one rank
            ids.append(other + torch.randint(rows - 3, shapes[1], generator=g))
            ids.append(torch.randint(t * rows, shapes[2], generator=g))
            upstream = [torch.randn(*i.shape, WIDTH, generator=g, dtype=dtype) for i in ids]
            for rank in members:
                shard = torch.randn(rows, WIDTH, generator=g, dtype=dtype)
                job = {"title": title, "members": [list(one) for one in groups], "shard": shard}
                given[rank]["jobs"].append({**job, "ids": ids, "upstream": upstream})
    return given


def on_rank(answer: Any, jobs: Any) -> Any:
    from dtlearn.grading.on_rank.same_on_all import same_on_all_ranks
    from dtlearn.runtime.recording.phases import phase

    notes: Any = []
    for job in jobs:
        group = None
        for members in job["members"]:
            made = dist.new_group(members)
            group = made if dist.get_rank() in members else group
        shard = job["shard"].clone().requires_grad_()
        *first, last = job["ids"]
        longer = torch.cat([last, last[..., :1]], -1)  # what is looked up is often all but the last token of each row
        results: Any = []
        complete = True
        for calls in (first, [longer[..., :-1]]):
            gradients = [dy.clone() for dy in job["upstream"][len(results) :][: len(calls)]]
            made = [answer(ids, shard, group) for ids in calls]
            results += made
            pairs = list(zip(made, gradients, strict=True))
            if all(isinstance(y, torch.Tensor) and y.shape == dy.shape and y.requires_grad for y, dy in pairs):
                with phase("backward"):
                    torch.autograd.backward(made, gradients)
            else:
                complete = False
            if calls is first:
                with torch.no_grad():
                    shard.mul_(-2.0)  # as an optimizer does; FACTOR
        note: Any = {"embeddings": list(results), "gradient": None}
        if complete:
            note = {"embeddings": [one.detach().clone() for one in results], "gradient": shard.grad}
        note["changed"] = not torch.equal(shard.detach(), job["shard"] * -2.0)
        notes.append(note)
        # The same on all ranks, though other groups have other data: later the ranks would wait for one that is alone.
        if len(notes) < len(jobs) and same_on_all_ranks(note["embeddings"][0]) and job["members"]:
            return notes
    return notes


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    return by_rank(given, play_of(Way(masked)))


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    named: list[dict[str, Any]] = [{} for _ in given]
    for rank, (i, notes) in enumerate(zip(given, got, strict=True)):
        for job, note in zip(i["jobs"], notes, strict=False):  # fewer notes if groups are ignored
            if note["changed"]:
                text = f"{job['title']}: rank {rank} changed its shard; only its .grad may change, and in backward only"
                return Finding("DTL-VALUE-PARAMETERS", text, rank)
            named[rank][job["title"]] = {key: note[key] for key in ("embeddings", "gradient")}
    ways = [("", "", play_of(Way(masked))), *((code, text, play_of(way)) for code, text, way in WAYS)]
    right = [{title: of[title] for title in own} for of, own in zip(expected(case, given), named, strict=True)]
    if not (found := first_mistake(_VALUES, case, given, named, ways)):
        return rounded_to_float32(right, named)
    is_half = any(event.dtype in ("bfloat16", "float16") for event in record)
    return rounded(found, right, named) if is_half else _without_graph(found, right, named)


def _without_graph(found: Finding, right: list[dict[str, Any]], named: list[dict[str, Any]]) -> Finding:
    """Right embeddings that backward cannot start from."""
    for rank, (wanted, notes) in enumerate(zip(right, named, strict=True)):
        for title, note in notes.items():
            if note["gradient"] is None and not difference(wanted[title]["embeddings"], note["embeddings"], 1e-5, 1e-6):
                text = f"{title}: on rank {rank} the embeddings are right, and no gradient reaches shard: what is "
                return Finding("DTL-VALUE-NO-GRADIENTS", f"{text}returned has to be made of it under autograd", rank)
    return found


def why(case: Case, given: Given, record: Record) -> str:
    text = "an id of another rank has no row here, and ids minus the first one of this rank may be negative or too "
    text += "large for F.embedding: this rank's are 0 to rows - 1. The rank is the one in the group; "
    return f"{MAY_HELP}{text}ids have any shape, and may be a part of longer rows (reshape, not view)"


def _largest(job: dict[str, Any]) -> list[int]:
    return [dy.numel() * dy.element_size() for dy in job["upstream"]]


def _no_gather(case: Case, given: Given, record: Record) -> Finding | None:
    shards = {rows * WIDTH: rows for _, rows, _ in _CALLS}
    for event in record:
        if event.nbytes and event.shape and (rows := shards.get(math.prod(event.shape))) and "gather" in event.op:
            text = f"line {event.line} of rank {event.rank} calls {event.op} with its whole shard, {rows} rows: the "
            text += (
                "weight is put together on a rank. Only the rows of the ids are needed, each from the rank that has it"
            )
            return Finding("DTL-RULE-WEIGHT-GATHERED", text, event.rank, event.line or None)
    return None


def _most_sent(case: Case, given: Given) -> float:
    """All results gathered from all ranks of the group, and added up; the shards are larger.

    Two ranks send as much in a reduce-scatter and an all-gather, where the result may have to be padded.
    """
    most = 0.0
    for job in given[0]["jobs"]:
        t, itemsize = len(group_of(0, job, case.world_size)), job["shard"].element_size()
        most += sum(max((t - 1) * n, 2 * (t - 1) / t * (n + (t - 1) * itemsize)) for n in _largest(job))
    return most


def _least_calls(case: Case, given: Given) -> int:
    """Of a rank that is alone in one job."""
    return 3 * sum(min(len(g) for g in with_all(job["members"], case.world_size)) > 1 for job in given[0]["jobs"])


def _calls(case: Case) -> int:
    return sum(len(shapes) for shapes, _, _ in _CALLS)


_VALUES = Check(on_rank, inputs, expected, rtol=1e-6, atol=1e-7)
CHECK = replace(
    _VALUES,
    expected=None,
    verify=verify,
    why=why,
    calls=_calls,
    payload=lambda case, given: round(sum(sum(_largest(job)) for job in given[0]["jobs"]) / _calls(case)),
    rules=[
        silent_backward("each rank has the gradient of the whole result already"),
        _no_gather,
        most_sent(_most_sent, "partial results, added up or gathered,"),
        no_silent_rank(least_calls=_least_calls),
    ],
    reads=[no_stores],
    stress=Stress(poison=True),
)
