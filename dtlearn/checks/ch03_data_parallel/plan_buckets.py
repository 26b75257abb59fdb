"""ch03.plan_buckets: by size, cap and dtype. Both ranks plan for themselves."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import torch

from dtlearn.grading import Case, Check, Finding, Given, Mistake, compare, rules
from dtlearn.runtime.record.record import Record

from ._plans import Plan, cut_at_dtypes, fill, ready_order

_F32, _BF16 = "float32", "bfloat16"
_MIB = 2**20

_CASES: dict[str, dict[str, Any]] = {
    "sizes that exceed the cap": {
        "nbytes": [40, 24, 16, 100, 8, 36, 20, 28, 12],
        "bucket_cap": 48,
        "first_bucket_cap": 16,
    },
    "equal sizes": {"nbytes": [4] * 9, "bucket_cap": 12, "first_bucket_cap": 4},
    "a first gradient larger than both caps": {"nbytes": [8, 8, 8, 8, 64], "bucket_cap": 20, "first_bucket_cap": 8},
    "the same cap everywhere": {"nbytes": [8, 16, 8, 8, 24, 8, 8], "bucket_cap": 24, "first_bucket_cap": 24},
    "two dtypes in turn": {
        "nbytes": [8, 4, 8, 4, 8, 4, 8, 4],
        "dtypes": [_F32, _BF16] * 4,
        "bucket_cap": 16,
        "first_bucket_cap": 8,
    },
    "a few norms in another dtype": {
        "nbytes": [24, 4, 24, 4, 24, 24, 4, 24, 24],
        "dtypes": [_BF16, _F32, _BF16, _F32, _BF16, _BF16, _F32, _BF16, _BF16],
        "bucket_cap": 60,
        "first_bucket_cap": 24,
    },
    "a head in another dtype": {
        "nbytes": [24] * 6 + [4, 4],
        "dtypes": [_BF16] * 6 + [_F32] * 2,
        "bucket_cap": 60,
        "first_bucket_cap": 24,
    },
    "a transformer and torch's caps": {"transformer": 6, "bucket_cap": 25 * _MIB, "first_bucket_cap": _MIB},
    "random sizes": {"random": 40, "bucket_cap": 1000, "first_bucket_cap": 200},
}


def inputs(case: Case) -> Given:
    params = case.params
    nbytes = list(params.get("nbytes", ()))
    dtypes = list(params.get("dtypes", [_F32] * len(nbytes)))
    if layers := params.get("transformer"):
        width = 768
        block = [4 * n for n in (width, width, 3 * width**2, 3 * width, width**2, width, 4 * width**2, 4 * width**2)]
        nbytes = [4 * 50257 * width, *(block * layers), 4 * width]
        dtypes = [_F32] * len(nbytes)
    if number := params.get("random"):
        g = case.generator()
        nbytes = (4 * torch.randint(1, 100, (number,), generator=g)).tolist()
        dtypes = [(_F32, _BF16)[k] for k in torch.randint(0, 2, (number,), generator=g).tolist()]
    caps = {name: params[name] for name in ("bucket_cap", "first_bucket_cap")}
    return [{"nbytes": nbytes, "dtypes": dtypes, **caps}] * case.world_size


def on_rank(answer: Any, nbytes: Any, dtypes: Any, bucket_cap: int, first_bucket_cap: int) -> Any:
    return answer(nbytes, dtypes, bucket_cap=bucket_cap, first_bucket_cap=first_bucket_cap)


def expected(case: Case, given: Given) -> list[Plan]:
    return [ready_order(fill(**i)) for i in given]


def mistakes(case: Case, given: Given) -> list[Mistake]:
    job = given[0]
    n, cap, first_cap = len(job["nbytes"]), job["bucket_cap"], job["first_bucket_cap"]
    several = len(set(job["dtypes"])) > 1
    found: list[Mistake] = []

    def add(code: str, text: str, *plans: Plan) -> None:
        found.extend(Mistake(code, text, [plan] * case.world_size) for plan in plans)

    def both(**change: Any) -> list[Plan]:
        """With a mistake; as it comes, and sorted."""
        plan = fill(**{**job, **change})
        return [ready_order(plan), plan]

    plan = ready_order(fill(**job))
    by_first = sorted(plan, key=lambda bucket: bucket[0], reverse=True)
    text = "the buckets are right, but sorted by when they were opened: a bucket is ready when its last gradient is "
    add("DTL-VALUE-ORDER", f"{text}there, and {_late(plan, by_first)}", by_first)
    text = "the buckets are right, but those still open at the end come last: one of them is ready earlier, when its "
    add("DTL-VALUE-ORDER", f"{text}last gradient is there, and {_late(plan, fill(**job))}", fill(**job))
    text = "the buckets are right, but they come in the reverse order: the first one is ready first"
    add("DTL-VALUE-ORDER", text, plan[::-1])
    text = "the buckets are right, but the indices in them are sorted; they should stand in the order they came in"
    add("DTL-VALUE-ORDER", text, [sorted(bucket) for bucket in plan])
    forward = fill(**job, order=range(n))
    add(
        "DTL-VALUE-FORWARD",
        f"the first bucket holds parameter 0, whose gradient comes last. Either the walk begins at parameter 0 and not "
        f"at {n - 1}, where backward begins; or the indices are places in a reversed list",
        forward,
        sorted(forward, key=lambda bucket: bucket[-1]),
    )
    add(
        "DTL-VALUE-FORWARD",
        "these are the buckets of a walk from parameter 0 on, turned around at the end: the small first bucket and the "
        "rest lie at the wrong ends",
        forward[::-1],
        [bucket[::-1] for bucket in forward[::-1]],
    )
    add(
        "DTL-VALUE-PLACES",
        f"the indices are places in the reversed list: place 0 there is parameter {n - 1}",
        [[n - 1 - index for index in bucket] for bucket in ready_order(fill(**job))],
    )
    if several:
        mixed = fill(**{**job, "dtypes": [_F32] * n})
        bad = next((b for b in mixed if len({job["dtypes"][i] for i in b}) > 1), [])
        held = " and ".join(sorted({job["dtypes"][i] for i in bad}))
        text = f"bucket {bad} holds {held}: a bucket is one tensor, of one dtype; each dtype needs an open bucket"
        add("DTL-VALUE-DTYPES", text, mixed)
        text = "a bucket is closed where the dtype changes: it should stay open, with one open bucket for each dtype"
        add("DTL-VALUE-DTYPES", text, *cut_at_dtypes(**job))
        text = "when one bucket is full, the open buckets of the other dtypes are closed as well: each has its own cap"
        add("DTL-VALUE-DTYPES", text, *both(close_all=True))
        text = "only the very first bucket has the small cap: the first bucket of each dtype has it"
        add("DTL-VALUE-FIRST-CAP", text, *both(first_of_all=True))
    if first_cap != cap:
        text = f"first_bucket_cap, {first_cap:,}, is ignored: the first bucket is as large as the others, and its "
        add("DTL-VALUE-FIRST-CAP", f"{text}all-reduce begins late", *both(first_bucket_cap=cap))
        text = f"every bucket has the small cap, {first_cap:,}: it is for the first one only, then it is {cap:,}"
        add("DTL-VALUE-FIRST-CAP", text, *both(bucket_cap=first_cap))
    if 0 < (rest := cap - first_cap) < cap:
        text = f"a bucket is closed at {rest:,} bytes, as if its cap were bucket_cap - first_bucket_cap: all buckets "
        text += f"after the first have the whole bucket_cap, {cap:,}"
        add("DTL-VALUE-CAP", text, *both(second_cap=rest), *both(bucket_cap=rest))
    every = list(reversed(range(n)))
    ends = f"its all-reduce can only begin when backward has ended; the caps, {first_cap:,} and {cap:,}, are in bytes"
    add(
        "DTL-VALUE-NO-BUCKETS",
        f"one bucket for each parameter: {n} all-reduces; a bucket stays open until it holds its cap",
        [[index] for index in every],
    )
    add("DTL-VALUE-NO-BUCKETS", f"one bucket for all: {ends}", [every])
    lost = sorted(set(range(n)) - {i for bucket in fill(**job, keep_open=False) for i in bucket})
    add(
        "DTL-VALUE-LOST-BUCKET",
        f"parameters {', '.join(map(str, lost))} are in no bucket, so nobody averages their gradients: what is still "
        "open at the end is a bucket as well",
        *both(keep_open=False),
    )
    add(
        "DTL-VALUE-CAP",
        "a bucket is closed before it would exceed its cap; it takes that parameter in and is closed then: when it "
        "holds at least its cap",
        *both(overflow=True),
    )
    large = next((i for i in every if job["nbytes"][i] > cap), None)
    text = f"parameter {large} is larger than the cap and has a bucket of its own: it belongs into the open one, and "
    add("DTL-VALUE-CAP", f"{text}closes it", *both(large_alone=True))
    add(
        "DTL-VALUE-CAP",
        "a bucket that holds exactly its cap stays open here: it is full, and is closed at once (>=, not >)",
        *both(strict=True),
    )
    return found


def _late(right: Plan, wrong: Plan) -> str:
    """ "[1] is ready before [2, 0]": the first two that changed places."""
    a, b = next(((a, b) for a, b in zip(right, wrong, strict=True) if a != b), ([], []))
    return f"{a} is ready before {b}"


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    """Compares; where the values alone say nothing, by the first bucket that is another one."""
    found = compare(_VALUES, case, given, expected(case, given), got)
    if found is None or found.code not in ("DTL-VALUE", "DTL-VALUE-SHAPE"):
        return found
    job, have, want = given[0], got[found.rank or 0], expected(case, given)[0]
    if not all(isinstance(bucket, list) and all(type(i) is int for i in bucket) for bucket in have):
        return found
    seen, indices = Counter(i for bucket in have for i in bucket), range(len(job["nbytes"]))
    if outside := [i for i in seen if i not in indices]:
        text = f"index {outside[0]} is no parameter: they are numbered from 0 to {len(indices) - 1}, not from 1"
        return replace(found, code="DTL-VALUE-LOST-BUCKET", text=text)
    if empty := [k for k, bucket in enumerate(have) if not bucket]:
        text = f"bucket {empty[0]} of {len(have)} is empty: a bucket that was just closed is followed by another one "
        text += "only if there is a parameter to put into it"
        return replace(found, code="DTL-VALUE-EMPTY-BUCKET", text=text)
    if lost := [str(i) for i in indices if i not in seen]:
        are = "parameters {} are" if len(lost) > 1 else "parameter {} is"
        text = f"{are.format(', '.join(lost))} in no bucket, so nobody averages the gradient"
        return replace(found, code="DTL-VALUE-LOST-BUCKET", text=text)
    if odd := [i for i, times in seen.items() if times > 1 or i not in indices]:
        text = f"index {odd[0]} stands {seen[odd[0]]} times in the plan; 0 to {len(indices) - 1} belong there once"
        return replace(found, text=text)
    if sorted(have) == sorted(want):
        text = f"the buckets are right, but in another order: {_late(want, have)}, as its last gradient comes earlier"
        return replace(found, code="DTL-VALUE-ORDER", text=text)
    k = next(k for k, bucket in enumerate(want) if have[k : k + 1] != [bucket])
    if k >= len(have):
        return found
    kind = job["dtypes"][want[k][0]]
    first = kind not in {job["dtypes"][bucket[0]] for bucket in want[:k]}
    cap = job["first_bucket_cap" if first else "bucket_cap"]
    a, b = (f"{bucket} ({sum(job['nbytes'][i] for i in bucket):,} bytes)" for bucket in (have[k], want[k]))
    return replace(found, code="DTL-VALUE-CAP", text=f"bucket {k} is {a} and should be {b}: its cap is {cap:,} bytes")


_VALUES = Check(on_rank, inputs, expected, cases=_CASES, mistakes=mistakes)
CHECK = replace(_VALUES, expected=None, verify=verify, rules=[rules.most_messages("0")])
