"""ch12.split_and_reassemble: dims, strides, dtypes and groups; each weight is put together of three sets of parts."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from dtlearn.grading import Case, Check, Edit, Finding, Given, Stress
from dtlearn.runtime.record.record import Record

from ..sent import no_stores
from . import MAY_HELP, SOME, groups_of

PART = (4, 4)
CASES: dict[str, dict[str, Any]] = {
    "the first dim": {},
    "the last dim": {"says": "the weight is cut, and its parts are joined, along `dim`, whatever it is", "dim": 1},
    "a negative dim": {"says": "a negative dim counts from the end", "dim": -1},
    "a weight and parts that are not contiguous": {
        "says": "the weight, and what reassemble is given, may have any strides in memory",
        "strided": True,
    },
    "whole numbers": {"says": "the weight may have any dtype, and all of its digits come back", "dtype": torch.int64},
    "groups of fewer ranks": {
        "says": "the ranks of the group have the parts, not those of the job (group=group)",
        "groups": SOME,
    },
    "another weight cut after it": {
        "says": "a weight that was cut later has changed what reassemble does: what belongs to a weight is its own",
        "others": SOME,
    },
    "a size that the ranks do not divide": {"says": "expected a ValueError that names both numbers", "left": 1},
}
WHOLE, CUT, PLACE = "torch.cat(parts, dim)", "full.chunk(num_ranks, dim)[place].clone()", "dist.get_rank(group)"
GATHER, EMPTY = "dist.all_gather(parts, part, group=group)", "[torch.empty_like(part) for _ in range(num_ranks)]"
INNER, TIDY, LAST = "    def reassemble(", "part = part.contiguous()", "split_and_reassemble.last"
EDITS = (
    Edit("the part is that of the rank's number in the job, modulo the group's size; its place in the group counts: "
         "dist.get_rank(group)", {PLACE: "dist.get_rank() % dist.get_world_size(group)"}),
    Edit("the weight is cut into as many parts as the job has ranks; the group may have fewer: "
         "dist.get_world_size(group)",
         {f"dist.get_world_size(group), {PLACE}": "dist.get_world_size(), dist.get_rank()",
          GATHER: "dist.all_gather(parts, part)"}),
    Edit("rows or columns are dealt out in turn; a part is contiguous: the first one has the first of them",
         {CUT: "full.movedim(dim, 0)[place::num_ranks].movedim(0, dim).clone()"}),
    Edit("rows or columns are dealt out in turn; a part is contiguous: the first one has the first of them",
         {CUT: "full.movedim(dim, 0)[place::num_ranks].movedim(0, dim).clone()",
          WHOLE: "torch.stack([p.movedim(dim, 0) for p in parts], 1).flatten(0, 1).movedim(0, dim)"}),
    Edit("the weight is cut along its first dim, whatever `dim` is", {CUT: CUT.replace("dim", "0")}),
    Edit("the weight is cut along its last dim, whatever `dim` is", {CUT: CUT.replace("dim", "-1")}),
    Edit("the weight is cut along its first dim, whatever `dim` is",
         {CUT: CUT.replace("dim", "0"), WHOLE: "torch.cat(parts)"}),
    Edit("the weight is cut along its last dim, whatever `dim` is",
         {CUT: CUT.replace("dim", "-1"), WHOLE: "torch.cat(parts, -1)"}),
    Edit("the part is the whole weight: nothing was cut", {CUT: "full.clone()"}),
    Edit("a negative dim is taken as the first one: it counts from the end", {WHOLE: "torch.cat(parts, max(dim, 0))"}),
    Edit("the parts are joined along the first dim, whatever `dim` is", {WHOLE: "torch.cat(parts)"}),
    Edit("the parts stand one after the other in memory, and are given the shape of the whole: for another dim than "
         "the first this mixes rows up (torch.cat along `dim`)",
         {WHOLE: f"torch.cat(parts).reshape({WHOLE}.shape)"}),
    Edit("when another weight was cut, reassemble has the dim and the group of that one: both belong to what is "
         "returned, not to a function, class or module",
         {INNER: f"    {LAST} = dim, group\n\n{INNER}", WHOLE: f"torch.cat(parts, {LAST}[0])",
          EMPTY: f"[torch.empty_like(part) for _ in range(dist.get_world_size({LAST}[1]))]",
          GATHER: f"dist.all_gather(parts, part, group={LAST}[1])"}),
    Edit("what a rank gives comes back: nothing was gathered", {WHOLE: "part.clone()"}),
    Edit("only the rank's own part is in the whole; the rest is 0",
         {GATHER: "parts = [p.zero_() for p in parts]; parts[place].copy_(part)"}),
    Edit("the part of one rank stands in every place: the list of parts to receive has one tensor several times "
         "([torch.empty_like(part)] * n makes one)", {EMPTY: "[torch.empty_like(part)] * num_ranks"}),
    Edit("each rank puts its own part first; the order is that of the ranks in the group",
         {WHOLE: "torch.cat([parts[place], *parts[:place], *parts[place + 1 :]], dim)"}),
    Edit("numbers go through float32: the dtype of the part has more digits",
         {TIDY: "dtype, part = part.dtype, part.float().contiguous()", WHOLE: f"{WHOLE}.to(dtype)"}),
    Edit("reassemble returns the weight as it was when it was cut; it has to make it of the parts that it is given",
         {WHOLE: "kept.clone()", INNER: f"    kept = full.clone()\n\n{INNER}"}),
    Edit("reassemble returns what it made of the same tensor before, though its values have changed in place since",
         {INNER: f"    made = {{}}\n\n{INNER}",
          TIDY: f"key = id(part)\n        if key in made:\n            return made[key].clone()\n        {TIDY}",
          f"return {WHOLE}": f"made[key] = {WHOLE}\n        return made[key].clone()"}),
    Edit("the part is a view, and keeps the whole weight's memory. Slices and chunks are views, and contiguous() "
         "copies only what is not contiguous already: clone() always copies", {CUT: CUT.removesuffix(".clone()")}),
    Edit("`full` was changed: it is only to be read", {CUT: f"{CUT}; full.zero_()"}),
    Edit("the whole weight, or a copy of it, is still in memory after `full` was dropped: reassemble refers to it. "
         "Keep numbers, such as the size, not the tensor", {WHOLE: f"{WHOLE}.reshape(full.shape)"}),
    Edit("the second call of reassemble changed what the first one had returned: each has to return a new tensor",
         {INNER: f"    kept = []\n\n{INNER}", f"return {WHOLE}":
          f"kept.append({WHOLE})\n        return kept[0].copy_(kept.pop()) if kept[1:] else kept[0]"}),
    Edit("reassemble returns the part that it was given, not a new tensor: a change of one changes the other",
         {TIDY: f"if num_ranks == 1:\n            return part\n        {TIDY}"}),
    Edit("a size that the ranks do not divide: expected a ValueError, but nothing was raised",
         {"if size % num_ranks:": "if False:"}),
    Edit("the message of the ValueError has to name both numbers, the size and the ranks",
         {'f"{num_ranks} ranks do not divide dim {dim}, which has the size {size}"': '"the ranks do not divide it"'}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    g, n, p = case.generator(), case.world_size, case.params

    def random(*shape: int) -> torch.Tensor:
        if p.get("dtype"):
            return torch.randint(-(2**62), 2**62, shape, generator=g)  # more digits than float64
        return torch.randn(shape, generator=g)

    given: Given = [{} for _ in range(n)]
    groups, dim = groups_of(case), p.get("dim", 0)
    for group in groups:
        size = PART[dim] * len(group) + p.get("left", 0)
        full = random(size, PART[1]) if dim == 0 else random(PART[0], size)
        for rank in group:
            given[rank] = {"full": full, "dim": dim, "group": groups, "others": p.get("others", {}).get(n, [])}
            given[rank] |= {"new": random(*PART), "strided": "strided" in p, "left": p.get("left", 0)}
    return given


def on_rank(
    answer: Any, full: Any, dim: Any, group: Any, new: Any, strided: Any = False, others: Any = (), left: Any = 0
) -> Any:
    from dtlearn.grading.on_rank.tools import has_own_memory, holds, own_group, refusal_naming
    from dtlearn.runtime.recording.phases import phase

    own = own_group(group)
    if left:
        numbers = [full.shape[dim], dist.get_world_size(own)]
        return {"a size that the ranks do not divide": refusal_naming(numbers, answer, full, dim, own)}
    whole, new = (t.mT.contiguous().mT if strided else t.clone() for t in (full, new))
    with phase("cut"):
        returned = answer(whole, dim, own)
        _ = answer(torch.zeros(8, 8), 1, own_group(others)) if others else None
    if not (isinstance(returned, tuple | list) and len(returned) == 2 and callable(returned[1])):
        return {"a part and a function are returned": False}
    part, reassemble = returned
    facts = {
        "a part and a function are returned": True,
        "part": part.clone(),
        "full is unchanged": torch.equal(whole, full),
    }
    facts["memory of its own"] = has_own_memory(part, whole)
    facts["whole weight held"] = holds(full, facts["part"], part, reassemble, answer)
    first = reassemble(part)
    facts["whole"] = first.clone()
    second = reassemble(new)
    facts["whole of changed parts"], facts["first result as it was"] = second, torch.equal(first, facts["whole"])
    pairs = ((first, part), (second, new))
    facts["new tensors"] = all(a.untyped_storage().data_ptr() != b.untyped_storage().data_ptr() for a, b in pairs)
    if part.shape == new.shape:
        part.detach().copy_(new)
    return {**facts, "whole after a change in place": reassemble(part)}


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = [{} for _ in given]
    for ranks in given[0]["group"]:
        for place, rank in enumerate(ranks):
            full, dim = given[rank]["full"], given[rank]["dim"]
            if case.params.get("left"):
                text = f"a ValueError that names {full.shape[dim]} and {len(ranks)}"
                results[rank] = {"a size that the ranks do not divide": text}
                continue
            changed = torch.cat([given[r]["new"] for r in ranks], dim)
            results[rank] = {"a part and a function are returned": True, "part": full.chunk(len(ranks), dim)[place]}
            results[rank] |= {"full is unchanged": True, "memory of its own": True, "whole weight held": False}
            results[rank] |= {"whole": full, "whole of changed parts": changed, "first result as it was": True}
            results[rank] |= {"new tensors": True, "whole after a change in place": changed}
    return results


def calls(case: Case, given: Given, record: Record) -> Finding | None:
    """Nothing is sent to cut, and what comes from other ranks was sent where it is counted."""
    for event in record:
        where = f"line {event.line} of rank {event.rank} calls {event.op}"
        if event.phase == "cut" and event.op != "new_group":
            text = f"{where} to cut the weight; every rank of the group has all of it: nothing is to be sent"
            return Finding("DTL-RULE-CALLS", text, event.rank, event.line or None)
        if event.detail.get("strided"):
            text = (
                f"{where} with a tensor that is not contiguous: gloo takes it, NCCL, which trains on GPUs, refuses it"
            )
            return Finding("DTL-RULE-CALLS", f"{text}. Send part.contiguous()", event.rank, event.line or None)
    for rank, own in enumerate(given):
        alone = [rank] in own["group"] or own["left"]
        if not alone and not record.select(rank=rank).nbytes():
            text = f"the values are right, but rank {rank} sent nothing through torch.distributed to reassemble"
            return Finding("DTL-RULE-CALLS", f"{text}: parts went where nobody counts", rank)
    return None


def why(case: Case, given: Given, record: Record) -> str:
    """The hint for a run whose calls do not match: a call that all ranks of the job would have to join."""
    if (
        any(event.group == "world" and not event.is_p2p and event.nbytes for event in record)
        and "groups" in case.params
    ):
        return "it is a call of all ranks of the job; pass group=group, as a group may have fewer"
    return f"{MAY_HELP}dist.get_rank() without the group is the number in the job; a tensor may not be contiguous"


CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    example=[{"full": torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8]]), "dim": 1, "group": [[0, 1]], "new": torch.tensor(new)}
             for new in ([[0, 2], [5, 6]], [[3, 4], [7, 9]])],
    why=why,
    calls=lambda case: 1 if case.params.get("left") else 3,
    payload=lambda case, given: given[0]["new"].nbytes,
    rules=[calls],
    reads=[no_stores],
    stress=Stress(poison=True),
)  # fmt: skip
