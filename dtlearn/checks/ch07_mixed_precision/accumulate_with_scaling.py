"""ch07.accumulate_with_scaling: five updates under torch's DDP, of which two overflow, each on one rank.

The model is float32, in which a scale changes no result, but for gradients above the largest number of float16: these
become infinite as they come in. Of the two that overflow, one has a finite loss. Wrong answers are played in the judge,
in float64.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from dtlearn.grading import Case, Check, Finding, Given, Mistake, compare
from dtlearn.runtime.record.record import Record

from ..marks import steps_of
from ..passes import find_wrong_passes
from ..sent import no_silent_rank, no_stores
from ._wrong_updates import (
    GROWTH,
    LARGEST,
    LR,
    MOMENTUM,
    OVERFLOWS,
    ROWS,
    SCALE,
    SHAPES,
    UPDATES,
    Way,
    gradients,
    length_of,
    play,
    weighted,
    wrong_ways,
)

# `limit`: max_norm as a multiple of the first gradient's norm; `old`: what is in every gradient before, as from an
# earlier step.
_CASES: dict[str, dict[str, float]] = {
    "3 micro-batches": {"k": 3, "limit": 1e6, "old": 8192.0},
    "3 micro-batches, long gradients": {"k": 3, "limit": 0.25, "old": 8192.0},
    "1 micro-batch, after an overflow": {"k": 1, "limit": 0.25, "old": math.inf},
}
_FLAGS = 8  # bytes beside the gradients


def inputs(case: Case) -> Given:
    g, k, n = case.generator(), int(case.params["k"]), case.world_size
    weights = {name: torch.randn(shape, generator=g) for name, shape in SHAPES.items()}
    given: Given = []
    for rank in range(n):
        updates = [
            [[torch.randn(ROWS, 5, generator=g) + rank, torch.randn(ROWS, 2, generator=g)] for _ in range(k)]
            for _ in range(UPDATES)
        ]
        for update, who, micro_batch, target in OVERFLOWS:
            if rank == who % n:
                updates[update][micro_batch][1][0, 0] = target
        given.append({"weights": weights, "updates": updates})
    first = [gradients(weights, i["updates"][0]) for i in given]
    norm = length_of(weighted([(1 / (k * n), one) for own in first for one in own]))
    for i in given:
        i["max_norm"] = case.params["limit"] * norm
        i["numbers"] = {"scale": SCALE, "growth": GROWTH, "lr": LR, "momentum": MOMENTUM, "largest": LARGEST}
        i["numbers"]["old"] = case.params["old"]
    return given


def on_rank(answer: Any, weights: Any, updates: Any, max_norm: float, numbers: Any) -> Any:
    from dtlearn.runtime.rank.task import mark

    module: Any = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    module.load_state_dict(weights)
    model: Any = torch.nn.parallel.DistributedDataParallel(module, bucket_cap_mb=1e-4)
    for _ in range(2):  # DDP forms its buckets after the first backward pass
        model(updates[0][0][0]).sum().backward()
    optimizer = torch.optim.SGD(model.parameters(), lr=numbers["lr"], momentum=numbers["momentum"])
    scaler = torch.amp.GradScaler("cpu", init_scale=numbers["scale"], growth_interval=numbers["growth"])
    forward, backward, inner, kept = [], [], [], []
    model.register_forward_pre_hook(lambda *_: forward.append(model.require_backward_grad_sync))
    model.register_forward_pre_hook(lambda *_: mark("pass") if len(forward) <= 50 else None)
    module.register_forward_pre_hook(lambda *_: inner.append(True))
    module[2].bias.register_hook(lambda _: backward.append(model.require_backward_grad_sync))
    module[2].bias.register_hook(lambda _: kept.append(len(forward) - len(backward)))

    def overflow(_: Any, args: Any, out: Any) -> None:
        out.register_hook(lambda g: torch.where(g.abs() > numbers["largest"], g * torch.inf, g))

    module.register_forward_hook(overflow)
    notes = []
    for micro_batches in updates:
        for parameter in module.parameters():
            parameter.grad = torch.full_like(parameter, numbers["old"])
        mark("begin")
        answer(model, [tuple(pair) for pair in micro_batches], scaler, optimizer, max_norm)
        values = {name: value.clone() for name, value in module.state_dict().items()}
        passes = {"forward": list(forward), "backward": list(backward), "inner": len(inner), "kept": list(kept)}
        notes.append({"parameters": values, "scale": scaler.get_scale(), **passes})
        for one in (forward, backward, inner, kept):
            one.clear()
    return notes


def _title(case: Case, update: int) -> str:
    for at, who, micro_batch, target in OVERFLOWS:
        if at == update:
            place, loss = "first" if micro_batch == 0 else "last", "finite" if target < 1e19 else "infinite"
            text = f"update {update}, with an overflow on rank {who % case.world_size}, {place} micro-batch"
            return f"{text} (its loss is {loss})"
    return f"update {update}"


def _play(case: Case, given: Given, way: Way) -> list[dict[str, Any]]:
    """By rank, the parameters and the scale after each update."""
    titles = [_title(case, u) for u in range(UPDATES)]
    return [dict(zip(titles, results, strict=True)) for results in play(given, way, case.params["old"])]


def expected(case: Case, given: Given) -> list[dict[str, Any]]:
    return _play(case, given, Way())


def mistakes(case: Case, given: Given) -> list[Mistake]:
    ways = wrong_ways(case.world_size, int(case.params["k"]), case.params["old"])
    return [Mistake(code, text, _play(case, given, way)) for code, text, way in ways]


def verify(case: Case, given: Given, got: list[Any], record: Record) -> Finding | None:
    """The passes of each micro-batch; what was not skipped; then the values, with the updates' descriptions."""
    k, titles = int(case.params["k"]), [_title(case, u) for u in range(UPDATES)]
    named = []
    for rank, notes in enumerate(got):
        if not _is_readable(notes):
            return Finding("DTL-RESULT", f"rank {rank} sent no readable result", rank)
        for update, note in enumerate(notes):
            if len(note["backward"]) < len(note["forward"]) and "overflow" in titles[update]:
                text = f"rank {rank} made no backward pass for a micro-batch that overflows: it is left out, and "
                return Finding("DTL-VALUE-DROPPED", f"{text}the step has to be skipped, on all ranks", rank)
            if found := find_wrong_passes(rank, k, note["forward"], note["backward"], note["inner"]):
                return found
            if any(note["kept"]):
                text = (
                    f"rank {rank} made forward passes before the backward pass of the micro-batch before: so several "
                )
                text += "are kept at once, in the memory that they were cut up to save"
                return Finding("DTL-RULE-PASSES", text, rank)
        named.append(
            {t: {name: note[name] for name in ("parameters", "scale")} for t, note in zip(titles, notes, strict=True)}
        )
    for title in titles:
        for rank, one in enumerate(named):
            values = one[title]["parameters"].values()
            if not all(isinstance(v, torch.Tensor) and bool(v.isfinite().all()) for v in values):
                text = f"after {title}, parameters of rank {rank} are infinite or NaN: such a step has to be skipped"
                text += "; scaler.step(optimizer) does so, by the gradients, which can overflow where no loss does"
                return Finding("DTL-VALUE-NOT-SKIPPED", text, rank)
    right = expected(case, given)
    found = compare(_VALUES, case, given, right, named)
    if (found is None or found.code == "DTL-VALUE") and (early := _sent_early(case, record)):
        return early
    if found and not any(flag for notes in got for note in notes for flag in note["forward"]):
        text = "the last micro-batch is within no_sync() too: so no backward pass averages over the ranks"
        return Finding("DTL-VALUE-NO-SYNC", text, found.rank)
    if found and found.code == "DTL-VALUE":
        for title in titles:
            for rank, one in enumerate(named):
                if (scale := one[title]["scale"]) != right[rank][title]["scale"]:
                    text = f"after {title}, the scale of rank {rank} is {scale:g}, and should be "
                    text += f"{right[rank][title]['scale']:g}: the scaler is updated once, skipped or not, and has to "
                    return Finding("DTL-VALUE-SCALE", f"{text}see the infinities: leave them in the gradients", rank)
    return found


def _sent_early(case: Case, record: Record) -> Finding | None:
    """A call before the last micro-batch of an update."""
    marked = steps_of(record, "begin( pass)*", [UPDATES] * case.world_size)
    if isinstance(marked, Finding):
        return marked
    for rank, updates in enumerate(marked):
        early = [(marks[0].came_ns, marks[-1].came_ns) for marks in updates]
        for event in record.select(rank=rank):
            if event.nbytes and any(begin <= event.start_ns < end for begin, end in early):
                by = (
                    f"line {event.line} of rank {rank} leads to {event.op}"
                    if event.line
                    else f"rank {rank} calls {event.op}"
                )
                text = f"{by} before the last micro-batch: until then gradients only add up, within model.no_sync()"
                return Finding("DTL-RULE-MESSAGES", text, rank, event.line or None)
    return None


def sent_once(case: Case, given: Given, record: Record) -> Finding | None:
    """The gradients go over the network once in an update."""
    n = payload(case, given)
    for rank in range(case.world_size):
        if (made := record.nbytes(rank=rank) / UPDATES) > n + _FLAGS:
            text = (
                f"rank {rank} sent {made:,.0f} bytes an update: n + {_FLAGS} are the most, where n = {n} is the size "
            )
            text += f"of all gradients, which are sent once, and {_FLAGS} bytes are room for two flags"
            return Finding("DTL-RULE-BYTES", text, rank)
    return None


def _is_readable(notes: Any) -> bool:
    """Whether this is what `on_rank` returns: a learner's process could send anything."""
    keys = {
        "parameters": dict,
        "scale": float,
        "forward": list,
        "backward": list,
        "inner": int,
        "kept": list,
    }
    return (
        isinstance(notes, list)
        and len(notes) == UPDATES
        and all(
            isinstance(note, dict) and set(note) == set(keys) and all(isinstance(note[k], keys[k]) for k in keys)
            for note in notes
        )
    )


def payload(case: Case, given: Given) -> int:
    return sum(4 * int(t.numel()) for t in given[0]["weights"].values())


_VALUES = Check(on_rank, inputs, expected, cases=_CASES, mistakes=mistakes, rtol=1e-3, atol=1e-4)
CHECK = Check(
    on_rank,
    inputs,
    None,
    cases=_CASES,
    verify=verify,
    rules=[
        no_silent_rank(least_bytes=lambda case, given: (UPDATES - len(OVERFLOWS)) * payload(case, given)),
        sent_once,
    ],
    payload=payload,
    calls=lambda case: UPDATES,
    reads=[no_stores],
)
