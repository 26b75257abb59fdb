"""ch12.vocabulary_embedding: ids in the middle of the shards and at their borders, shapes, an update, groups."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from dtlearn.grading import Case, Check, Edit, Finding, Given, Stress
from dtlearn.runtime.record.record import Record

from ..sent import no_silent_rank, no_stores
from ..traffic import most_sent
from . import MAY_HELP, SOME, at_least_one_call, groups_of, silent_backward

ROWS, WIDTH = 6, 2
CASES: dict[str, dict[str, Any]] = {
    "ids in the middle of the shards": {},
    "ids at the borders of the shards": {
        "says": "the first and the last id of a shard belong to its rank, and to no other: 0 <= local < rows",
        "rows": [0, ROWS - 1],
    },
    "an id that comes twice": {"says": "the gradients of an id that comes several times are added up", "rows": [2, 2]},
    "ids of three dims, parts of longer rows": {
        "says": "ids may have any shape, and be a part of longer rows (reshape, not view)",
        "shape": (2, 1, 2),
    },
    "two calls before backward": {
        "says": "embeddings are looked up twice before the first backward pass: keep nothing of a call",
        "calls": 2,
    },
    "an update between two calls": {
        "says": "after an update of the shards the embeddings are still those from before: keep no weight",
        "calls": 2,
        "update": True,
    },
    "groups of fewer ranks": {
        "says": "the rank in the group, and the sum over the group, count: other groups have other weights and ids",
        "groups": SOME,
    },
}
PLACE, GATHER = "dist.get_rank(group)", "dist.all_reduce(total, group=group)"
FOREIGN, LOOKUP = "(local < 0) | (local >= num_rows)", "F.embedding(local.masked_fill(foreign, 0), shard)"
MASKED, HAND_ON = "rows.masked_fill(foreign.unsqueeze(-1), 0.0)", "return gradient  # whole on every rank already"
BACK = "total = gradient.clone(); dist.all_reduce(total, group=group); return total"
SUMMED, CLASS = "SumOverRanks.apply(", "    class SumOverRanks("
CLAMP, REST = "F.embedding(local.clamp(0, num_rows - 1), shard)", "F.embedding(ids % num_rows, shard)"
HIDDEN = "(rows - (rows * foreign.unsqueeze(-1)).detach())"  # 0 for ids of others, which autograd does not know
ROW_0 = "ids of other ranks are looked up as row 0 of the own shard"
EDGES = "ids of other ranks are looked up as the first or last row of the own shard (clamp)"
REMAINDER = "ids of other ranks are looked up as id % rows of the own shard"
KEPT = "the results are right, but in the backward pass"
TO_ROW = "which get their gradients: masking has to be part of what autograd sees, not done in .data or no_grad"
EDITS = (
    Edit(f"{ROW_0} and added to the sum: zeros belong there", {MASKED: "rows"}),
    Edit(f"{EDGES} and added to the sum: zeros belong there", {LOOKUP: CLAMP, MASKED: "rows"}),
    Edit(f"{REMAINDER} and added to the sum: zeros belong there", {LOOKUP: REST, MASKED: "rows"}),
    Edit("ids below those of this rank become negative, and count from the end of the shard: zeros belong there",
         {FOREIGN: "local >= num_rows", LOOKUP: "shard[local.masked_fill(foreign, 0) % num_rows]"}),
    Edit(f"{KEPT} {ROW_0}, {TO_ROW}", {MASKED: HIDDEN}),
    Edit(f"{KEPT} {EDGES}, {TO_ROW}", {LOOKUP: CLAMP, MASKED: HIDDEN}),
    Edit(f"{KEPT} {REMAINDER}, {TO_ROW}", {LOOKUP: REST, MASKED: HIDDEN}),
    Edit("the results are right, but row 0 of each shard gets no gradient, as with padding_idx=0: it is a token too",
         {LOOKUP: "F.embedding(local.masked_fill(foreign, 0), shard, padding_idx=0)"}),
    Edit("the first id of each shard is looked up by no rank: its row is missing", {"(local < 0)": "(local <= 0)"}),
    Edit("the last id of each shard is looked up by no rank: its row is missing",
         {"(local >= num_rows)": "(local >= num_rows - 1)"}),
    Edit("the id after the last of each shard counts as its own too: two rows are added",
         {FOREIGN: "(local < 0) | (local > num_rows)", LOOKUP: CLAMP}),
    Edit("the id before the first of each shard counts as its own too: two rows are added",
         {"(local < 0)": "(local < -1)", LOOKUP: CLAMP}),
    Edit("the sum over the ranks is divided by their number: each row comes from one rank only",
         {GATHER: f"{GATHER}; total /= dist.get_world_size(group)"}),
    Edit("the result is the largest of the ranks' values: the zeros of other ranks win where a row is negative",
         {GATHER: "dist.all_reduce(total, dist.ReduceOp.MAX, group=group)"}),
    Edit("the result and its gradient are divided by the number of ranks: each row comes from one rank only",
         {GATHER: f"{GATHER}; total /= dist.get_world_size(group)",
          HAND_ON: "return gradient / dist.get_world_size(group)"}),
    Edit("the results are right, but the gradient is t times as large: each rank has the whole gradient of the result "
         "already, so the backward pass must not add it up over the ranks again", {HAND_ON: BACK}),
    Edit("the results are right, but the gradient is divided by the number of ranks: each rank has its rows to itself",
         {HAND_ON: "return gradient / dist.get_world_size(group)"}),
    Edit("the results are right, and no gradient reaches shard: what is returned has to be made of it under autograd",
         {LOOKUP: LOOKUP.replace("shard", "shard.detach()")}),
    Edit("numbers are rounded to float32 on the way: keep the dtype of shard",
         {"total = x.clone()": "total = x.to(torch.float32, copy=True)",
          GATHER: f"{GATHER}; total = total.to(x.dtype)"}),
    Edit("numbers are rounded to 16 bits on the way: keep the dtype of shard",
         {"total = x.clone()": "total = x.to(torch.bfloat16)", GATHER: f"{GATHER}; total = total.to(x.dtype)"}),
    Edit("the shard was changed: only its .grad may change, and in backward only",
         {LOOKUP: f"{LOOKUP}; shard.data.mul_(2)"}),
    Edit("id i is looked up on rank i % t: a rank has contiguous rows, from r V/t on",
         {f"local = ids - {PLACE} * num_rows": "local = ids // dist.get_world_size(group)",
          FOREIGN: f"ids % dist.get_world_size(group) != {PLACE}"}),
    Edit("after a change of the shards, as by an optimizer, the embeddings are still those from before: keep no weight",
         {CLASS: "    vocabulary_embedding.old = getattr(vocabulary_embedding, 'old', shard.detach().clone())\n"
                 f"{CLASS}",
          LOOKUP: f"{LOOKUP}; rows = rows - rows.detach() + {LOOKUP.replace('shard', 'vocabulary_embedding.old')}"}),
    Edit("a later call with as many ids has changed the embeddings of an earlier one: each call returns a new tensor",
         {"total = x.clone()": "total = vocabulary_embedding.one = getattr(vocabulary_embedding, 'one', x.clone()); "
                               "total.copy_(x)"}),
    Edit("the results are right, but the backward pass adds up the gradient over all ranks of the job: each rank has "
         "the whole gradient of the result already, so nothing is added up there, in no group",
         {HAND_ON: BACK.replace(", group=group", "")
          + " if dist.get_world_size(group) < dist.get_world_size() else gradient"}),
    Edit("the first id of a shard is computed from the rank in the world, not from the rank in the group",
         {PLACE: "dist.get_rank()"}),
    Edit("all ranks are added up, not those of the group: other groups have other weights",
         {GATHER: "dist.all_reduce(total)"}),
    Edit("the rank in the world and the sum over the world are used, not those of the group",
         {PLACE: "dist.get_rank()", GATHER: "dist.all_reduce(total)"}),
    Edit("each rank has the rows of its own ids and zeros for those of others: nothing is added up over the ranks",
         {GATHER: "pass"}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    g, p = case.generator(), case.params
    given: Given = [{} for _ in range(case.world_size)]
    for ranks in groups_of(case):
        of_ranks = torch.arange(len(ranks)).repeat_interleave(2) * ROWS
        ids = [of_ranks + torch.tensor(p.get("rows", [1, 4])).repeat(len(ranks)) for _ in range(p.get("calls", 1))]
        ids = [one[torch.randperm(len(one), generator=g)][:4].reshape(p.get("shape", (-1,))) for one in ids]
        if len(ranks) == 1:
            ids = [torch.tensor([1, 4]) for one in ids]
        dys = [torch.randn(*one.shape, WIDTH, dtype=torch.float64, generator=g) for one in ids]
        for rank in ranks:
            shard = torch.randn(ROWS, WIDTH, dtype=torch.float64, generator=g)
            given[rank] = {"ids": ids, "shard": shard, "dys": dys, "update": p.get("update", False)}
            given[rank]["group"] = groups_of(case) if "groups" in p else []
    return given


def on_rank(answer: Any, ids: Any, shard: Any, dys: Any, group: Any = (), update: Any = False) -> Any:
    from dtlearn.grading.on_rank.tools import own_group

    own, given = own_group(group), shard
    shard = given.clone().requires_grad_()
    made: Any = []
    for one in ids:
        if update and made:
            with torch.no_grad():
                shard.mul_(-2.0)  # as an optimizer does
        longer = torch.cat([one, one[..., :1]], -1)  # what is looked up is often all but the last token of each row
        made.append(answer(longer[..., :-1], shard, own))
        if not isinstance(made[-1], torch.Tensor):
            return {"embeddings": made}
    kept = [one.detach().clone() for one in made]
    pairs = list(zip(made, dys, strict=True))
    if not update and all(one.requires_grad and one.shape == dy.shape for one, dy in pairs):
        torch.autograd.backward(made, dys)
    changed = not torch.equal(shard.detach(), given * (-2.0 if update else 1.0))
    return {"embeddings": kept, "gradient of shard": shard.grad, "shard is changed": changed}


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    """The lookup in the whole weight."""
    results: list[dict[str, Any]] = [{} for _ in given]
    for ranks in groups_of(case):
        weight = torch.cat([given[rank]["shard"] for rank in ranks]).requires_grad_()
        own, update = given[ranks[0]], case.params.get("update", False)
        ys = [F.embedding(one, weight * (-2.0) ** (update * k)) for k, one in enumerate(own["ids"])]
        for y, dy in zip(ys if not update else (), own["dys"], strict=False):
            y.backward(dy)
        gradients = [None] * len(ranks) if weight.grad is None else weight.grad.chunk(len(ranks))
        for rank, gradient in zip(ranks, gradients, strict=True):
            results[rank] = {"embeddings": ys, "gradient of shard": gradient, "shard is changed": False}
    return results


def no_gather(case: Case, given: Given, record: Record) -> Finding | None:
    for event in record:
        if "gather" in event.op and event.nbytes == given[event.rank]["shard"].nbytes:
            text = f"line {event.line} of rank {event.rank} calls {event.op} with its whole shard, {ROWS} rows: the "
            text += (
                "weight is put together on a rank. Only the rows of the ids are needed, each from the rank that has it"
            )
            return Finding("DTL-RULE-WEIGHT-GATHERED", text, event.rank, event.line or None)
    return None


def sent(case: Case, given: Given) -> Any:
    """All results gathered from all ranks of the group, or reduced and gathered in pieces, which may be padded."""
    t = len(groups_of(case)[0])
    return sum(max((t - 1) * dy.nbytes, 2 * (t - 1) / t * (dy.nbytes + (t - 1) * 8)) for dy in given[0]["dys"])


def why(case: Case, given: Given, record: Record) -> str:
    text = "an id of another rank has no row here: ids minus the first one of this rank may be negative, or too large; "
    return f"{MAY_HELP}{text}ids have any shape, and may be a part of longer rows (reshape, not view)"


CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    example=[{"ids": [torch.tensor([3, 0, 3])], "shard": torch.tensor(shard), "dys": [torch.ones(3, 1)]}
             for shard in ([[10.0], [11.0]], [[12.0], [13.0]])],
    why=why,
    calls=lambda case: case.params.get("calls", 1),
    payload=lambda case, given: given[0]["dys"][0].nbytes,
    rules=[
        silent_backward("each rank has the gradient of the whole result already"),
        no_gather,
        most_sent(sent, "partial results, added up or gathered,"),
        no_silent_rank(least_calls=at_least_one_call),
    ],
    reads=[no_stores],
    rtol=1e-9,
    atol=1e-9,
    stress=Stress(poison=True),
)  # fmt: skip
