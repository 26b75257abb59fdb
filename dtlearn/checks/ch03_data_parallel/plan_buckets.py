"""ch03.plan_buckets: by size, cap and dtype. Every rank plans for itself; the order of all is that of torch."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from dtlearn.grading import Case, Check, Edit, Given, rules

F32, BF16 = "float32", "bfloat16"
OPEN = "one bucket is open for each dtype: it stays open while gradients of another one come"
CASES: dict[str, dict[str, Any]] = {
    "equal sizes": {
        "says": "fill a bucket from the last index on, and close it as soon as it holds its cap, in bytes",
        "nbytes": [4] * 9,
        "caps": (4, 12),
    },
    "different sizes": {
        "says": "a bucket is closed as soon as it holds at least its cap: so it may exceed the cap by its last "
        "parameter",
        "nbytes": [40, 24, 16, 100, 8, 36, 20, 28, 12],
        "caps": (16, 48),
    },
    "two dtypes in turn": {"says": OPEN, "nbytes": [8, 4] * 4, "dtypes": [F32, BF16] * 4, "caps": (8, 16)},
    "a head in another dtype": {
        "says": "a bucket that is still open at the end stands where its last gradient is ready",
        "nbytes": [24] * 6 + [4, 4],
        "dtypes": [BF16] * 6 + [F32] * 2,
        "caps": (24, 60),
    },
}
WALK, DTYPE, FILL = "reversed(range(len(nbytes)))", "dtype = dtypes[index]", "bucket.append(index)"
BYTES, FULL, CLOSE = "sum(nbytes[i] for i in bucket)", ">= caps[dtype]", "buckets.append(open_buckets.pop(dtype))"
SMALL, LARGE, LEFT = "(dtypes, first_bucket_cap)", "caps[dtype] = bucket_cap", "buckets += open_buckets.values()"
RETURN = "return sorted(buckets, key=lambda bucket: bucket[-1], reverse=True)"
FORWARD = "return sorted(buckets, key=lambda bucket: bucket[-1])"
AROUND = (
    "these are the buckets of a walk from parameter 0 on, turned around at the end: the small first bucket and the "
    "rest lie at the wrong ends"
)
REST = "as if the cap were bucket_cap - first_bucket_cap: all buckets after the first have the whole bucket_cap"
# The special ones first: of two that lead to the same values the first one names them.
EDITS = (
    Edit("the buckets are right, but those still open at the end come last: one of them is ready earlier, when its "
         "last gradient is there", {RETURN: "return buckets"}),
    Edit("the buckets are right, but sorted by when they were opened: a bucket is ready when its last gradient is "
         "there",
         {"bucket: bucket[-1]": "bucket: bucket[0]"}),
    Edit("only the very first bucket has the small cap: the first bucket of each dtype has it",
         {LARGE: "caps = dict.fromkeys(dtypes, bucket_cap)"}),
    Edit("when one bucket is full, the open buckets of the other dtypes are closed as well: each has its own cap",
         {CLOSE: "buckets += open_buckets.values(); open_buckets.clear()",
          LARGE: "caps = dict.fromkeys(dtypes, bucket_cap)"}),
    Edit("a bucket is closed where the dtype changes: it should stay open, with one open bucket for each dtype",
         {DTYPE: f"{DTYPE}\n        buckets += [open_buckets.pop(d) for d in list(open_buckets) if d != dtype]"}),
    Edit("a bucket holds several dtypes: it is one tensor, of one dtype; each dtype needs an open bucket",
         {DTYPE: 'dtype = ""', "fromkeys(dtypes": 'fromkeys([""]'}),
    Edit("a bucket that was just closed is followed by an empty one: open another only for a parameter to put into it",
         {CLOSE: "buckets.append(bucket); open_buckets[dtype] = []", "bucket[-1]": "bucket[-1] if bucket else -1"}),
    Edit("a bucket is closed before it would exceed its cap; it takes that parameter in and is closed then: when it "
         "holds at least its cap",
         {FULL: '>= float("inf")', FILL: f"if bucket and {BYTES} + nbytes[index] > caps[dtype]: "
          f"buckets.append(bucket); {LARGE}; bucket = open_buckets[dtype] = []\n        {FILL}"}),
    Edit("a parameter larger than the cap has a bucket of its own: it belongs into the open one, and closes it",
         {DTYPE: f"{DTYPE}\n        if nbytes[index] > bucket_cap: buckets.append([index]); {LARGE}; continue"}),
    Edit("each parameter counts as 4 bytes, whatever its size: add up nbytes", {BYTES: "4 * len(bucket)"}),
    Edit("the indices are places in the reversed list: place 0 there is the last parameter",
         {WALK: "range(len(nbytes))", "caps = dict": "nbytes, dtypes = nbytes[::-1], dtypes[::-1]; caps = dict",
          RETURN: FORWARD}),
    Edit("a bucket that holds exactly its cap stays open: it is full, and is closed at once (>=, not >)",
         {FULL: "> caps[dtype]"}),
    Edit("the size of a bucket is its number of parameters: the caps are in bytes", {BYTES: "len(bucket)"}),
    Edit("the total of bytes goes on after a bucket is closed: of a new bucket it starts at 0",
         {BYTES: "sum(nbytes[i] for i in range(index, len(nbytes)) if dtypes[i] == dtype)"}),
    Edit("first_bucket_cap is ignored: the first bucket is as large as the others, and its all-reduce begins late",
         {SMALL: "(dtypes, bucket_cap)"}),
    Edit("every bucket has the small cap: it is for the first one of its dtype only", {LARGE: "pass"}),
    Edit(f"the second bucket is closed {REST}",
         {LARGE: f"{LARGE} - first_bucket_cap if len(buckets) == 1 else bucket_cap"}),
    Edit(f"buckets are closed {REST}", {LARGE: f"{LARGE} - first_bucket_cap"}),
    Edit("what is still open at the end is lost, so nobody averages these gradients: it is a bucket as well",
         {LEFT: "pass"}),
    Edit("parameter 0 is in no bucket, so nobody averages its gradient", {WALK: "range(len(nbytes) - 1, 0, -1)"}),
    Edit("the buckets are right, but they come in the reverse order: the first one is ready first",
         {"reverse=True": "reverse=False"}),
    Edit("the buckets are right, but sorted by their length: they come in the order in which they are ready",
         {RETURN: "return sorted(buckets, key=len, reverse=True)"}),
    Edit("the buckets are right, but the indices in them are sorted; they should stand in the order they came in",
         {RETURN: RETURN.replace("return", "return [sorted(bucket) for bucket in") + "]"}),
    Edit("the indices are numbered from 1: parameter 0 is the first",
         {RETURN: RETURN.replace("return", "return [[i + 1 for i in bucket] for bucket in") + "]"}),
    Edit("the first bucket holds parameter 0, whose gradient comes last. Either the walk begins at parameter 0 and not "
         "at the last one, where backward begins; or the indices are places in a reversed list",
         {WALK: "range(len(nbytes))", RETURN: FORWARD}),
    Edit(AROUND, {WALK: "range(len(nbytes))", RETURN: "return buckets[::-1]"}),
    Edit(AROUND, {WALK: "range(len(nbytes))", RETURN: "return [bucket[::-1] for bucket in buckets[::-1]]"}),
    Edit("one bucket for each parameter: as many all-reduces; a bucket stays open until it holds its cap",
         {RETURN: "return [[index] for index in range(len(nbytes))][::-1]"}),
    Edit("one bucket for all: its all-reduce can only begin when backward has ended; the caps are in bytes",
         {RETURN: "return [list(range(len(nbytes)))[::-1]]"}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    nbytes, (first, other) = case.params["nbytes"], case.params["caps"]
    same = {"nbytes": nbytes, "dtypes": case.params.get("dtypes", [F32] * len(nbytes))}
    return [{**same, "bucket_cap": other, "first_bucket_cap": first}] * case.world_size


def on_rank(answer: Any, nbytes: Any, dtypes: Any, bucket_cap: int, first_bucket_cap: int) -> Any:
    return answer(nbytes, dtypes, bucket_cap=bucket_cap, first_bucket_cap=first_bucket_cap)


def expected(case: Case, given: Given) -> list[list[list[int]]]:
    """The plan of the function with which DDP plans its buckets anew after the first step, when it knows the order. It
    appends the buckets that are still open at the end in no particular order, so they are sorted."""
    own = given[0]
    order = list(reversed(range(len(own["nbytes"]))))
    dtypes = [getattr(torch, own["dtypes"][i]) for i in order]
    tensors = [torch.empty(own["nbytes"][i] // t.itemsize, dtype=t) for i, t in zip(order, dtypes, strict=True)]
    caps = [own["first_bucket_cap"], own["bucket_cap"]]
    plan, _ = dist._compute_bucket_assignment_by_size(tensors, caps, [False] * len(order), order)
    return [sorted(plan, key=lambda bucket: bucket[-1], reverse=True)] * case.world_size


CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    rules=[rules.most_messages("0")],
    example=[{"nbytes": [4] * 5, "dtypes": [F32] * 5, "bucket_cap": 8, "first_bucket_cap": 4}] * 2,
)
