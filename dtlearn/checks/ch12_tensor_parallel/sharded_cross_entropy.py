"""ch12.sharded_cross_entropy: logits of usual size, very large and very negative, with ignored targets.

What wrong answers lead to is computed in the judge, from the logits of all ranks, in float64: `ways.losses`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist

from dtlearn.grading import Case, Check, Finding, Given, Stress, difference
from dtlearn.runtime.record.record import Record

from ..rounded import rounded, rounded_to_float32
from ..sent import no_silent_rank, no_stores
from . import MAY_HELP
from .ways.groups import GROUPS, Play, by_rank, first_mistake, silent_backward, with_all
from .ways.losses import WAYS, Way, play

# Of each job: the shape of targets, the columns of a part, the dtype.
_SHAPES = (((2, 3), 16, torch.float32), ((1, 4), 24, torch.float64), ((3, 2), 20, torch.float32))
# Of each call: what is special, the factor and the offset of the logits, the ignored targets, and the gradient that
# backward begins with.
_CALLS: tuple[tuple[str, float, float, tuple[int, ...], float], ...] = (
    ("logits of usual size", 1.5, 0.0, (), 1.0),
    ("ignored targets", 1.0, 0.0, (0, 2), -2.5),
    ("large logits", 400.0, 0.0, (), 0.5),
    ("logits near -100", 1.0, -100.0, (3,), 3.0),
)
_LARGEST = 1e4
_PER_ROW = 6  # logits that a rank may send for each row


def inputs(case: Case) -> Given:
    g, n = case.generator(), case.world_size
    given: Given = [{"jobs": []} for _ in range(n)]
    for (title, groups), (shape, columns, dtype) in zip(GROUPS[n], _SHAPES, strict=True):
        for members in with_all(groups, n):
            t, rows = len(members), math.prod(shape)
            borders = torch.tensor([b for r in range(t) for b in (r * columns, (r + 1) * columns - 1)])
            calls: list[dict[str, Any]] = []
            for what, size, offset, ignored, upstream in _CALLS:
                targets = torch.cat([borders[torch.randperm(2 * t, generator=g)] for _ in range(rows)])[:rows]
                if ignored:  # elsewhere they are at the borders
                    targets = torch.randint(t * columns, (rows,), generator=g)
                whole = (torch.randn(*shape, t * columns, generator=g) * size + offset).to(dtype)
                if size > 100:
                    whole = _large(whole, int(torch.randint(t * columns, (), generator=g)))
                targets[list(ignored)] = -100
                parts = whole.chunk(t, -1)
                calls.append({"what": what, "parts": parts, "targets": targets.reshape(shape), "upstream": upstream})
            for place, rank in enumerate(members):
                own = [{**call, "logits": call["parts"][place].clone()} for call in calls]
                for call in own:
                    del call["parts"]
                given[rank]["jobs"].append({"title": title, "members": [list(m) for m in groups], "calls": own})
    return given


def _large(whole: torch.Tensor, column: int) -> torch.Tensor:
    """Up to 10,000 in this column; every other row is below -5,000.

    float32 has four digits less after the point there. So one logit of a row is so much larger than all others that
    the logarithm of the sum is this logit, without a rounding. In float64 the rows below -5,000 have several largest.
    """
    whole = whole.clamp(-_LARGEST, _LARGEST / 2)
    whole[..., column] = _LARGEST
    whole[..., ::2, :] = -whole[..., ::2, :].abs().clamp(min=_LARGEST / 2)
    if whole.dtype == torch.float32:
        whole[..., ::2, :] -= 200.0
        whole[..., ::2, column] = -_LARGEST / 2
    return whole


def on_rank(answer: Any, jobs: Any) -> Any:
    from dtlearn.grading.on_rank.same_on_all import same_on_all_ranks
    from dtlearn.runtime.recording.phases import phase

    notes: Any = []
    for job in jobs:
        group = None
        for members in job["members"]:
            made = dist.new_group(members)
            group = made if dist.get_rank() in members else group
        of_calls: Any = []
        started: Any = []
        for k, call in enumerate(job["calls"]):
            x, targets = call["logits"].clone(), call["targets"]
            if k == 1:  # logits of all but the last token, targets of all but the first, as they often are
                x = torch.cat([x, x[:, :1]], 1)
                targets = torch.cat([targets[:, :1], targets], 1)[:, 1:]
            leaf = x.clone().requires_grad_()
            loss = answer(leaf[:, :-1] if k == 1 else leaf, targets, group)
            of_calls.append({"loss": loss, "gradient": None})
            started.append((leaf, x, loss))
        for note, call, (leaf, x, loss) in zip(of_calls, job["calls"], started, strict=True):
            if isinstance(loss, torch.Tensor):
                note["loss"] = loss.detach().clone()
                if loss.requires_grad and loss.dim() == 0:
                    with phase("backward"):
                        (loss * call["upstream"]).backward()
                    note["gradient"] = leaf.grad if leaf.grad is None else leaf.grad[:, : call["logits"].shape[1]]
            note["changed"] = not torch.equal(leaf.detach(), x)
        notes.append(of_calls)
        # The same on all ranks, though other groups have other data: later the ranks would wait for one that is alone.
        if len(notes) < len(jobs) and same_on_all_ranks(of_calls[0]["loss"]) and job["members"]:
            return notes
    return notes


def _play(way: Way) -> Play:
    return lambda rank, everyone: play(way, rank, everyone)


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    return by_rank(given, _play(Way()))


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    named: list[dict[str, Any]] = [{} for _ in given]
    for rank, (i, notes) in enumerate(zip(given, got, strict=True)):
        for job, of_calls in zip(i["jobs"], notes, strict=False):  # fewer notes if groups are ignored
            named[rank][job["title"]] = {}
            for call, note in zip(job["calls"], of_calls, strict=True):
                if note["changed"]:
                    text = (
                        f"{job['title']}: rank {rank} changed its logits, which are the caller's: work on a new tensor"
                    )
                    return Finding("DTL-VALUE-IN-PLACE", text, rank)
                named[rank][job["title"]][call["what"]] = {key: note[key] for key in ("loss", "gradient")}
    right = [{title: of[title] for title in own} for of, own in zip(expected(case, given), named, strict=True)]
    ways = [("", "", _play(Way())), *((code, text, _play(way)) for code, text, way in WAYS)]
    if not (found := _unstable(right, named) or first_mistake(_VALUES, case, given, named, ways)):
        return rounded_to_float32(right, named)
    is_half = any(event.dtype in ("bfloat16", "float16") for event in record)
    return rounded(found, right, named) if is_half else _backward(found, right, named)


def _each(right: Sequence[dict[str, Any]], named: Sequence[dict[str, Any]]) -> Any:
    """(rank, title, what, wanted, had) of all calls."""
    for rank, of_rank in enumerate(right):
        for title, calls in of_rank.items():
            for what, wanted in calls.items():
                yield rank, title, what, wanted, named[rank][title][what]


def _unstable(right: list[dict[str, Any]], named: list[dict[str, Any]]) -> Finding | None:
    """Usual logits are right; others lead to infinity or NaN, or to nothing at all."""
    for rank, title, what, wanted, had in _each(right, named):
        if what in ("logits of usual size", "ignored targets"):
            if difference(wanted, had, _VALUES.rtol, _VALUES.atol):
                return None
        elif found := difference(wanted, had, _VALUES.rtol, _VALUES.atol, what):
            text = f"{title}: with logits of usual size loss and gradient are right, but not with {what}: {found.text} "
            text += (
                f"(rank {rank}). exp() of large numbers is infinite, and of very negative ones 0: the largest logit of "
            )
            return Finding("DTL-VALUE-UNSTABLE", f"{text}a row, of all ranks, has to be subtracted first", rank)
    return None


def _backward(found: Finding, right: list[dict[str, Any]], named: list[dict[str, Any]]) -> Finding:
    """Right losses whose backward pass fails, or does not begin."""
    calls = list(_each(right, named))
    if any(difference(wanted["loss"], had["loss"], _VALUES.rtol, _VALUES.atol) for _, _, _, wanted, had in calls):
        return found
    if all(had["gradient"] is None for *_, had in calls):
        text = "the losses are right, and no gradient reaches logits: what is returned has to be made of them under "
        return Finding("DTL-VALUE-NO-GRAPH", f"{text}autograd, or by a torch.autograd.Function", 0)
    is_wrong = [bool(difference(wanted, had, _VALUES.rtol, _VALUES.atol)) for *_, wanted, had in calls]
    is_last = [what == _CALLS[-1][0] for _, _, what, _, _ in calls]
    if found.code == "DTL-VALUE" and all(wrong != last for wrong, last in zip(is_wrong, is_last, strict=True)):
        text = "the losses are right, and the gradient of the call that came last, but not those of calls before it, "
        text += "whose backward passes come later: each call keeps what its own backward pass needs (ctx)"
        return Finding("DTL-VALUE-LAST-CALL", text, found.rank)
    if found.code == "DTL-VALUE-NAN":
        text = f"the losses are right, but {found.text}. Does autograd go through the maximum? It is a constant here: "
        return replace(found, text=f"{text}detach it before other ranks' values are written into it", advice="")
    return found


def why(case: Case, given: Given, record: Record) -> str:
    text = "a target of another rank, and one of -100, has no column here; a row of targets may be ignored as a whole; "
    text += "the rank is the one in the group; logits and targets may be parts of longer rows (reshape, not view)"
    return f"{MAY_HELP}{text}"


def _row_bytes(job: dict[str, Any]) -> int:
    """Of one number for each row."""
    return sum(call["targets"].numel() * call["logits"].element_size() for call in job["calls"])


def _few_numbers(case: Case, given: Given, record: Record) -> Finding | None:
    """No rank sends anything like its logits."""
    for rank, i in enumerate(given):
        most = _PER_ROW * sum(_row_bytes(job) for job in i["jobs"])
        events = [event for event in record.select(rank=rank) if not event.receives]
        if (sent := sum(event.nbytes for event in events)) > most:
            columns = i["jobs"][0]["calls"][0]["logits"].shape[-1]
            largest = max(events, key=lambda event: event.nbytes)
            per_row = sent / most * _PER_ROW
            text = f"rank {rank} hands over {per_row:.1f} numbers for each target, {sent:,} bytes in all; line "
            text += (
                f"{largest.line} calls {largest.op} with {largest.nbytes:,}. Its part has {columns} logits for each: "
            )
            text += "the logits are gathered, and 3 numbers suffice"
            return Finding("DTL-RULE-LOGITS-SENT", text, rank, largest.line or None)
    return None


def _least_calls(case: Case, given: Given) -> int:
    jobs = [job for job in given[0]["jobs"] if min(len(g) for g in with_all(job["members"], case.world_size)) > 1]
    return len(jobs) * len(_CALLS)


def _payload(case: Case, given: Given) -> int:
    return round(sum(map(_row_bytes, given[0]["jobs"])) / _calls(case))


def _calls(case: Case) -> int:
    return len(_SHAPES) * len(_CALLS)


_VALUES = Check(on_rank, inputs, expected, rtol=1e-4, atol=1e-6, stress=Stress(poison=True))
CHECK = Check(
    on_rank,
    inputs,
    None,
    verify=verify,
    why=why,
    calls=_calls,
    payload=_payload,
    rules=[
        _few_numbers,
        silent_backward("with the sums of the forward pass each rank has all that its own gradient needs"),
        no_silent_rank(least_calls=_least_calls),
    ],
    reads=[no_stores],
    stress=Stress(poison=True),
)
