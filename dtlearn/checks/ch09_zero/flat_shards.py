"""ch09.flat_shards: lists of tensors, of which each adds one difficulty; their shards, and what is made of others."""

from __future__ import annotations

from typing import Any

import torch

from dtlearn.grading import Case, Check, Edit, Given, rules
from dtlearn.runtime.record.record import Record

from . import MAY_HELP

# Per case: the `shapes`, N, the `dtypes`; `turned`: the first tensor is not contiguous; `others`: the function is
# called for other tensors before restore() is.
CASES: dict[str, dict[str, Any]] = {
    "N divides the number of elements": {"shapes": [(2, 2), (4,)], "num_ranks": 4},
    "padding": {
        "says": "zeros at the end of the buffer make all N shards one length, the smallest that suffices, and are no "
        "part of what comes back",
        "shapes": [(2, 2), (3,)],
    },
    "more ranks than elements": {"says": "there are N shards, also where the last ones are padding only",
                                 "shapes": [(3,), (2,)], "num_ranks": 7},
    "a tensor of the shape ()": {"says": "a tensor of the shape () has one element", "shapes": [(2,), (), (2, 3)]},
    "a tensor that is not contiguous": {
        "says": "the elements of a tensor stand in the buffer row by row, in whatever order its memory has them",
        "shapes": [(2, 3), (3,)],
        "turned": True,
    },
    "no elements at all": {"says": "tensors may have no elements: the shards then have none", "shapes": [(0, 2), (0,)]},
    "bfloat16": {
        "says": "shards and restored tensors have the dtype of `tensors`",
        "shapes": [(2, 2), (3,)],
        "dtypes": [torch.bfloat16],
    },
    "float64": {"says": "each element is kept to its last digit", "shapes": [(2, 2), (3,)], "dtypes": [torch.float64]},
    "large whole numbers": {"says": "each element is kept to its last digit", "shapes": [(2, 2), (3,)],
                            "dtypes": [torch.int64]},
    "another model before restore()": {
        "says": "restore() makes the tensors of the call that returned it, whatever was called since",
        "shapes": [(2, 2), (3,)],
        "others": [(3,), (2, 2)],
    },
    "two dtypes": {
        "says": "tensors of two dtypes, wherever they stand, do not fit into one buffer: a ValueError is expected",
        "shapes": [(2, 2), (3,), (2,)],
        "dtypes": [torch.float32, torch.float32, torch.float64],
    },
}  # fmt: skip
FLAT, CUT = (
    "flat = torch.cat([tensor.reshape(-1) for tensor in tensors])",
    "shards = [padded[rank * length :][:length] for rank in range(num_ranks)]",
)
BACK, LOOP = "whole, tensors_again, start = torch.cat(list(shards)), [], 0", "for tensor in tensors:\n"
PARTS, ZEROS = "flat.split([t.numel() for t in tensors])", "flat.new_zeros(-len(flat) % num_ranks)"
EQUAL = "[whole[r * (len(whole) // num_ranks) :][: len(whole) // num_ranks] for r in range(num_ranks)]"


def laid(shards: str, whole: str = "flat") -> dict[str, str]:
    """An edit with other shards of a flat vector, and the way back by the places of its elements in them."""
    back = "torch.cat(list(shards))[torch.cat(lay(torch.arange(1, len(flat) + 1))).argsort()[-len(flat) :]]"
    return {CUT: f"def lay(flat):\n        whole = {whole}\n        return {shards}\n\n    shards = lay(flat)",
            BACK: BACK.replace("torch.cat(list(shards))", back)}  # fmt: skip


EDITS = (
    Edit("the padding stands in front: it belongs at the end of the buffer",
         laid(EQUAL, f"torch.cat([{ZEROS}, flat])")),
    Edit("each tensor is padded by itself: pad the whole buffer once, at its end",
         laid(EQUAL, f"torch.cat([torch.cat([t, t.new_zeros(-len(t) % num_ranks)]) for t in {PARTS}])")),
    Edit("each tensor is cut into shards by itself: they are put one after the other, and the whole is cut",
         laid("[torch.cat(cuts) for cuts in zip(*whole)]",
              f"[torch.cat([t, t.new_zeros(-len(t) % num_ranks)]).tensor_split(num_ranks) for t in {PARTS}]")),
    Edit("N elements of padding are added where none are needed: N - n % N is N if N divides n, and -n % N is 0",
         laid(EQUAL, "torch.cat([flat, flat.new_zeros(num_ranks - len(flat) % num_ranks)])")),
    Edit("each shard that is too short is padded at its own end: all padding belongs at the end of the buffer, so that "
         "the shards, one after the other, are the buffer",
         laid("[torch.cat([s, s.new_zeros(len(whole[0]) - len(s))]) for s in whole]", "flat.tensor_split(num_ranks)")),
    Edit("only the last shard that has elements is padded, and there are none after it: N shards are expected",
         laid("[*whole[:-1], torch.cat([whole[-1], flat.new_zeros(length - len(whole[-1]))])][: num_ranks or None]",
              "flat.split(length) if length else [flat] * num_ranks")),
    Edit("the shards differ in length by one: all N have one length, with padding",
         laid("list(flat.tensor_split(num_ranks))")),
    Edit("the last shard gets what is left over: all N have one length, with padding",
         laid("[*(flat[r * whole :][:whole] for r in range(num_ranks - 1)), flat[(num_ranks - 1) * whole :]]",
              "len(flat) // num_ranks")),
    Edit("the last shards are shorter, and there is no padding: all N have one length",
         laid("[flat[r * length :][:length] for r in range(num_ranks)]")),
    Edit("the elements are dealt out to the shards in turn: a shard is a contiguous part of the buffer",
         laid("[whole[r::num_ranks] for r in range(num_ranks)]", f"torch.cat([flat, {ZEROS}])")),
    Edit("the tensors stand in the buffer from the last to the first",
         laid(EQUAL, f"torch.cat([*{PARTS}[::-1], {ZEROS}])")),
    Edit("the elements that are left over after n // N for each shard are in no shard",
         {CUT: "length = len(flat) // num_ranks; shards = [flat[r * length :][:length] for r in range(num_ranks)]",
          BACK: BACK.replace("list(shards)", "[*shards, flat[num_ranks * length :]]")}),
    Edit("a tensor that is not contiguous is read in the order of its memory: reshape(-1) reads it row by row",
         {FLAT: FLAT.replace("tensor.reshape", "(tensor if tensor.is_contiguous() else tensor.t()).reshape")}),
    Edit("the padding is float32, and makes the shards so: torch.zeros(k) is float32, flat.new_zeros(k) has the dtype "
         "of flat", {ZEROS: ZEROS.replace("flat.new_zeros", "torch.zeros")}),
    Edit("the elements are rounded, as they were float32 on the way", {FLAT: FLAT.replace("(-1)", "(-1).float()")
         .replace("tensors])", "tensors]).to(tensors[0].dtype)")}),
    Edit("the elements are rounded, as they were float64 on the way", {FLAT: FLAT.replace("(-1)", "(-1).double()")
         .replace("tensors])", "tensors]).to(tensors[0].dtype)")}),
    Edit("restore() returns tensors with their old values: it makes them of the shards that it is given",
         {BACK: BACK.replace("torch.cat(list(shards))", "padded")}),
    Edit("the first call of restore() is right, and the second one is not: what it needs was used up",
         {"    def restore": "    again = iter(tensors)\n\n    def restore",
          LOOP: LOOP.replace("in tensors", "in again")}),
    Edit("restore() changes the shards that were returned: they belong to the caller",
         {BACK: f"{BACK}\n        padded.copy_(whole)"}),
    Edit("each tensor is made of the first elements: each starts where the one before ends",
         {"start += tensor.numel()": "pass"}),
    Edit("restore() makes the tensors of the last call of flat_shards(): keep what it needs within it",
         {FLAT: f"flat_shards.last = tensors\n    {FLAT}", LOOP: LOOP.replace("in tensors", "in flat_shards.last")}),
    Edit("tensors of two dtypes, of which the other one comes last: nothing is raised, and a ValueError should be",
         {"}) > 1:": "}) > 9:"}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    p, g = case.params, case.generator()

    def tensors(shapes: list[tuple[int, ...]]) -> list[torch.Tensor]:
        dtypes = p.get("dtypes", [torch.float32]) * len(shapes)
        made = [torch.randint(-(2**60), 2**60, shape, generator=g) for shape in shapes]  # as int64 alone holds them
        return [t if dtype is torch.int64 else (t.double() / 2**55).to(dtype) for t, dtype in zip(made, dtypes)]  # noqa: B905

    own = {"tensors": tensors(p["shapes"]), "num_ranks": p.get("num_ranks", 3), "turned": p.get("turned", False)}
    return [{**own, "others": tensors(p.get("others", []))}] * case.world_size


def on_rank(answer: Any, tensors: Any, num_ranks: Any, turned: Any = False, others: Any = ()) -> Any:
    from dtlearn.grading.on_rank.tools import refusal

    if len({t.dtype for t in tensors}) > 1:
        return {"two dtypes": refusal(answer, tensors, num_ranks).partition(" that")[0]}
    given = [t.t().contiguous().t() if turned and not k else t for k, t in enumerate(tensors)]
    shards, restore = answer(given, num_ranks)
    kept = [shard.clone() for shard in shards]
    if len(others):
        answer(list(others), num_ranks)
    made = [[t.clone() for t in restore([number - shard for shard in kept])] for number in (3, 5)]
    alike = all(torch.equal(a, b) for a, b in zip(kept, shards, strict=True))
    names = ("restored from 3 - shards", "restored from 5 - shards")
    return {"shards": kept, **dict(zip(names, made, strict=True)), "shards left alone": alike}


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    tensors, n = given[0]["tensors"], given[0]["num_ranks"]
    if "dtypes" in case.params and len(set(case.params["dtypes"])) > 1:
        return [{"two dtypes": "a ValueError"}] * case.world_size
    flat = torch.cat([t.flatten() for t in tensors])
    whole = torch.cat([flat, flat.new_zeros(-len(flat) % n)])
    facts = {"shards": list(whole.view(n, len(whole) // n)), "shards left alone": True}
    return [{**facts, **{f"restored from {k} - shards": [k - t for t in tensors] for k in (3, 5)}}] * case.world_size


def why(case: Case, given: Given, record: Record) -> str:
    """The hint for a run that raised: the shapes, N, and what is special about its case."""
    shapes = ", ".join(str(shape) for shape in case.params["shapes"])
    special = f": {case.says}" if case.says else ""
    return f"{MAY_HELP}the tensors have the shapes {shapes}, and N = {given[0]['num_ranks']}{special}"


CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    example=[{"tensors": [torch.tensor([[1.0, 2], [3, 4]]), torch.tensor([5.0, 6, 7])], "num_ranks": 3}],
    why=why,
    rules=[rules.most_messages("0")],
    rtol=0.0,
    atol=0.0,
)
