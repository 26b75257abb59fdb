"""ch09.flat_shards: several lists of tensors; the shards, and what is made of shards with other values.

Sizes, and the order of the lists, differ from grading to grading.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from dtlearn.grading import Case, Check, Finding, Given, difference, rules
from dtlearn.runtime.record.record import Record

from . import MAY_HELP

Shards = list[torch.Tensor]
Way = Callable[[list[torch.Tensor], int], Shards]


def inputs(case: Case) -> Given:
    return [{"jobs": _jobs(case.generator(rank))} for rank in range(case.world_size)]


def _jobs(g: torch.Generator) -> list[dict[str, Any]]:
    def job(shapes: list[tuple[int, ...]], num_ranks: int, *dtypes: torch.dtype, turned: int = -1) -> dict[str, Any]:
        tensors = []
        for place, shape in enumerate(shapes):
            dtype = dtypes[place % len(dtypes)] if dtypes else torch.float32
            if dtype is torch.int64:  # as no other dtype holds them
                tensors.append(torch.randint(-(2**60), 2**60, shape, generator=g))
            else:
                tensors.append((torch.randn(shape, generator=g, dtype=torch.float64) * 50).to(dtype))
        return {"tensors": tensors, "num_ranks": num_ranks, "turned": turned, "fails": len(set(dtypes)) > 1}

    a, b, c = (int(torch.randint(2, 5, (), generator=g)) for _ in range(3))
    found = [
        job([(a, b), (2,), (), (2 * c, 3)], 3),
        job([(4, a), (4, b), (4 * c,)], 4),  # no padding
        job([(a, 3), (5,), (0, c), (2,), (0,)], 4, turned=0),
        job([(3,), (2,)], 7),  # the last two have padding only
        job([(0, a), (0,)], 2),
        job([(a, b), (c,)], 1),
        job([(a, c), (b,), ()], 5, torch.float64),
        job([(b, a), (c, 3)], 2, torch.bfloat16),
        job([(a,), (b, 2)], 3, torch.int64),
        job([(2 * a + 1, 2)], 4),
        job([(a, b), (c,), (3,)], 3, torch.float32, torch.float32, torch.float64),
        job([(0,), (a, b), (c,)], 3, torch.float64, torch.float32, torch.float32),
        job([(a, b), (c,)], 2, torch.bfloat16, torch.float16),
    ]
    first, *rest = found
    return [first, *(rest[k] for k in torch.randperm(len(rest), generator=g).tolist())]


def on_rank(answer: Any, jobs: Any) -> Any:
    notes: list[Any] = []
    late: list[Any] = []
    for job in jobs:
        tensors = job["tensors"]
        if job["turned"] >= 0:
            tensors = [t.t().contiguous().t() if k == job["turned"] else t for k, t in enumerate(tensors)]
        try:
            shards, restore = answer(tensors, job["num_ranks"])
        except Exception as error:
            if not job["fails"]:
                raise
            notes.append({"raised": type(error).__name__})
            continue
        notes.append({"raised": "", "shards": [s.clone() for s in shards], "restored": [], "again": []})
        late += [] if job["fails"] else [(notes[-1], shards, restore)]
    # Each restores after all others were made, and twice: other values, and padding that is no longer zero.
    for note, shards, restore in reversed(late):
        note["restored"] = [t.clone() for t in restore([3 - s for s in note["shards"]])]
        note["after"] = [s.clone() for s in shards]
    for note, _, restore in late:
        note["again"] = [t.clone() for t in restore([5 - s for s in note["shards"]])]
    return notes


def _flat(tensors: list[torch.Tensor]) -> torch.Tensor:
    return torch.cat([t.reshape(-1) for t in tensors])


def _cut(flat: torch.Tensor, n: int) -> Shards:
    return list(flat.view(n, -1)) if flat.numel() else [flat] * n


def _right(tensors: list[torch.Tensor], n: int) -> Shards:
    flat = _flat(tensors)
    return _cut(torch.cat([flat, flat.new_zeros(-len(flat) % n)]), n)


def _in_front(tensors: list[torch.Tensor], n: int) -> Shards:
    flat = _flat(tensors)
    return _cut(torch.cat([flat.new_zeros(-len(flat) % n), flat]), n)


def _each_padded(tensors: list[torch.Tensor], n: int) -> Shards:
    own = [t.reshape(-1) for t in tensors]
    return _cut(torch.cat([torch.cat([t, t.new_zeros(-len(t) % n)]) for t in own]), n)


def _each_divided(tensors: list[torch.Tensor], n: int) -> Shards:
    own = [_right([t], n) for t in tensors]
    return [torch.cat([shards[rank] for shards in own]) for rank in range(n)]


def _always_padded(tensors: list[torch.Tensor], n: int) -> Shards:
    flat = _flat(tensors)
    return _cut(torch.cat([flat, flat.new_zeros(n - len(flat) % n)]), n)


def _split(tensors: list[torch.Tensor], n: int) -> Shards:
    return list(_flat(tensors).tensor_split(n))


def _split_and_padded(tensors: list[torch.Tensor], n: int) -> Shards:
    shards = _split(tensors, n)
    return [torch.cat([s, s.new_zeros(len(shards[0]) - len(s))]) for s in shards]


def _dealt_out(tensors: list[torch.Tensor], n: int) -> Shards:
    flat = _flat(tensors)
    return [s.clone() for s in torch.cat([flat, flat.new_zeros(-len(flat) % n)]).view(-1, n).t()]


def _cut_off(tensors: list[torch.Tensor], n: int) -> Shards:
    flat = _flat(tensors)
    return _cut(flat[: len(flat) // n * n], n)


def _rest_to_last(tensors: list[torch.Tensor], n: int) -> Shards:
    flat = _flat(tensors)
    length = len(flat) // n
    return [*(flat[r * length :][:length] for r in range(n - 1)), flat[(n - 1) * length :]]


def _ragged(tensors: list[torch.Tensor], n: int) -> Shards:
    flat = _flat(tensors)
    length = -(-len(flat) // n)
    return [flat[r * length :][:length] for r in range(n)]


def _backwards(tensors: list[torch.Tensor], n: int) -> Shards:
    return _right(tensors[::-1], n)


def _as_stored(tensors: list[torch.Tensor], n: int) -> Shards:
    return _right([tensors[0].t().reshape(tensors[0].shape), *tensors[1:]] if tensors[0].dim() == 2 else tensors, n)


_WAYS: tuple[tuple[str, str, Way], ...] = (
    ("SHARD-PADDING", "the padding stands in front: it belongs at the end of the last shard", _in_front),
    ("SHARD-PADDING", "each tensor is padded by itself: pad the whole buffer once, at its end", _each_padded),
    (
        "SHARD-PADDING",
        "each tensor is cut into shards by itself: they are put one after the other, and the whole is cut",
        _each_divided,
    ),
    (
        "SHARD-PADDING",
        "N elements of padding are added where none are needed: N - n % N is N if N divides n; -n % N is 0",
        _always_padded,
    ),
    (
        "SHARD-PADDING",
        "each shard that is too short is padded at its own end: all padding belongs at the end of the buffer, so that "
        "the shards, one after the other, are the buffer",
        _split_and_padded,
    ),
    ("UNEVEN-SHARDS", "the shards differ in length by one: all N have one length, with padding", _split),
    ("UNEVEN-SHARDS", "the last shard gets what is left over: all N have one length, with padding", _rest_to_last),
    ("UNEVEN-SHARDS", "the last shards are shorter, and there is no padding: all N have one length", _ragged),
    (
        "DEALT-OUT",
        "the elements are dealt out to the shards in turn: a shard is a contiguous part of the buffer",
        _dealt_out,
    ),
    ("ELEMENTS-LOST", "the elements that are left over after n // N for each shard are in no shard", _cut_off),
    ("OTHER-ELEMENTS", "the tensors stand in the buffer from the last to the first", _backwards),
    (
        "MEMORY-ORDER",
        "a tensor that is not contiguous is read in the order of its memory: reshape(-1) reads it row by row",
        _as_stored,
    ),
)


def _same(wanted: Shards, got: Any) -> bool:
    return difference(wanted, got, 0, 0) is None


def _of(job: dict[str, Any]) -> str:
    shapes = ", ".join(str(tuple(t.shape)) for t in job["tensors"])
    n = sum(t.numel() for t in job["tensors"])
    dtypes = " and ".join(sorted({str(t.dtype).removeprefix("torch.") for t in job["tensors"]}))
    return f"tensors of the shapes {shapes} ({n} elements, {dtypes}), N = {job['num_ranks']}"


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    for rank, (i, notes) in enumerate(zip(given, got, strict=True)):
        pairs = list(zip(i["jobs"], notes, strict=True))
        if found := _shards(pairs) or next(filter(None, (_restored(*pair) for pair in pairs)), None):
            return Finding(f"DTL-VALUE-{found[0]}", found[1], rank)
    return None


def _shards(pairs: list[tuple[dict[str, Any], dict[str, Any]]]) -> tuple[str, str] | None:
    """What is wrong with the shards; a way that explains all jobs goes before what one of them shows."""
    wrong = []
    for job, note in pairs:
        if job["fails"]:
            if note["raised"] != "ValueError":
                text = f"{_of(job)}: {note['raised'] or 'nothing'} was raised, and a ValueError should be: two dtypes "
                return "MIXED-DTYPES", f"{text}do not fit into one flat buffer"
        elif not _same(_right(job["tensors"], job["num_ranks"]), note["shards"]):
            wrong.append((job, note))
    if not wrong:
        return None
    for code, text, way in _WAYS:
        if all(_same(way(job["tensors"], job["num_ranks"]), note["shards"]) for job, note in wrong):
            return code, f"{_of(wrong[0][0])}: {text}"
    job, note = wrong[0]
    return _one(job, note["shards"])


def _one(job: dict[str, Any], have: Any) -> tuple[str, str]:
    """What is wrong with the shards of one job, if no way explains them all."""
    tensors, n = job["tensors"], job["num_ranks"]
    right, where = _right(tensors, n), _of(job)
    if isinstance(have, list) and all(isinstance(s, torch.Tensor) for s in have) and have:
        if len(have) != n:
            return "SHAPE", f"{where}: there are {len(have)} shards"
        if any(s.dtype != tensors[0].dtype for s in have):
            dtypes = f"{have[0].dtype}, and the tensors are {tensors[0].dtype}"
            return (
                "FLAT-DTYPE",
                f"{where}: the shards are {dtypes}. torch.zeros(k) is float32; flat.new_zeros(k) is not",
            )
        lengths, length = [s.numel() for s in have], len(right[0])
        if any(s.dim() != 1 for s in have):
            return "SHAPE", f"{where}: a shard has the shape {tuple(have[0].shape)}; it is a vector"
        if set(lengths) != {length}:
            text = f"{where}: the shards have {', '.join(map(str, lengths))} elements, and each should have {length}"
            return ("UNEVEN-SHARDS" if len(set(lengths)) > 1 else "SHARD-LENGTH"), text
        own = math.prod((n, length)) - sum(t.numel() for t in tensors)
        flat, want = torch.cat(have), torch.cat(right)
        if own and torch.equal(flat[:-own], want[:-own]):
            return "SHARD-PADDING", f"{where}: the padding is {flat[-own:].tolist()}; it should be zeros"
        if not difference([s.double() for s in right], [s.double() for s in have], 1e-2, 1e-2):
            return "FLAT-DTYPE", f"{where}: the elements are rounded, as if they had been of another dtype on the way"
    found = difference(right, have, 0, 0, "shards")
    assert found is not None
    return found.code.removeprefix("DTL-VALUE").removeprefix("-") or "OTHER-ELEMENTS", f"{where}: {found.text}"


def _restored(job: dict[str, Any], note: dict[str, Any]) -> tuple[str, str] | None:
    """What is wrong with the tensors that `restore` made."""
    if job["fails"]:
        return None
    tensors, have, where = job["tensors"], note["restored"], f"restore, {_of(job)}"
    want = [3 - t for t in tensors]
    found = difference(want, have, 0, 0, "restored")
    if found is None and not _same(note["shards"], note["after"]):
        return "SHARDS-CHANGED", f"{where}: it changed the shards that had been returned; they belong to the caller"
    if found is None and not _same([5 - t for t in tensors], note["again"]):
        text = "the first call was right, and a second one, with other shards, was not: what it needs was used up or "
        return "RESTORED-ONCE", f"{where}: {text}changed"
    if found is None:
        return None
    if _same(tensors, have):
        text = "the tensors have their old values: restore() makes them of the shards that it is given"
        return "OLD-VALUES", f"{where}: {text}"
    if len(have) != len(tensors):
        return "SHAPE", f"{where}: {len(have)} tensors came back, and {len(tensors)} were given"
    if any(t.dtype != w.dtype for t, w in zip(have, want, strict=True)):
        return "FLAT-DTYPE", f"{where}: a tensor came back as {have[0].dtype}, and was {want[0].dtype}"
    for k, (t, w) in enumerate(zip(have, want, strict=True)):
        if t.shape != w.shape:
            code = "PADDING-KEPT" if t.numel() > w.numel() else "SHAPE"
            return code, f"{where}: tensor {k} came back with the shape {tuple(t.shape)}; it had {tuple(w.shape)}"
        if not torch.equal(t, w):
            text = f"{where}: tensor {k} came back with other elements than its own: each starts where the one before "
            return "RESTORED-ELEMENTS", f"{text}ends"
    return found.code.removeprefix("DTL-VALUE").removeprefix("-") or "RESTORED-ELEMENTS", f"{where}: {found.text}"


def why(case: Case, given: Given, record: Record) -> str:
    """Of a run that raised: what is special in it."""
    text = "a tensor may be () in shape, have no elements or not be contiguous, and N may be larger than their number; "
    return (
        f"{MAY_HELP}{text}restore() is called when flat_shards() has been called again for others, and more than once"
    )


CHECK = Check(on_rank, inputs, None, verify=verify, why=why, rules=[rules.most_messages("0")])
