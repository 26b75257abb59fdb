"""Small data to draw: a step of sharded training as a ledger and as a recorder see it."""

from types import SimpleNamespace

from dtlearn.memory.ledger.record import Allocation, MemoryRecord, Phase
from dtlearn.runtime.record.event import Event, Span
from dtlearn.runtime.record.record import merge
from dtlearn.viz.zero.unit_timeline import UnitRun

MILLION = 1_000_000
MS = 1_000_000


def memory(gradients: int = 2 * MILLION) -> MemoryRecord:
    """2 MB of parameters, 3 MB of activations in forward, and gradients that are there from backward on."""
    return MemoryRecord(
        (
            Allocation(2 * MILLION, "parameters", "up", "", "", "", 0, None),
            Allocation(3 * MILLION, "activations", "up", "aten::mm", "train.py:7", "forward", 1, 3),
            Allocation(gradients, "gradients", "up", "aten::mm", "", "backward", 2, None),
        ),
        (Phase("forward", 0, 1), Phase("backward", 1, 3), Phase("step", 3, 4)),
        4,
    )


def call(seq: int, op: str, launched: float, wait: float, end: float, rank: int = 0, nbytes: int = 100) -> Event:
    """An asynchronous collective, with times in ms; its data arrived when it ends."""
    times = round(launched * MS), round(end * MS)
    return Event(
        rank, seq, op, "world", seq, nbytes, "float32", (1,), None, {}, *times, True, "f.py", 1, "", round(wait * MS)
    )


def unit_run(label: str = "emulated link") -> UnitRun:
    """One unit: gathered 0 to 4 ms, computed to 6, gathered again 6 to 10, computed to 12, reduced 12 to 16."""
    calls = [
        call(0, "all_gather_into_tensor", 0, 0, 4),
        call(1, "all_gather_into_tensor", 6, 6, 10),
        call(2, "reduce_scatter_tensor", 12, 12, 16),
    ]
    spans = [
        Span(0, phase, a * MS, b * MS) for phase, a, b in (("forward", 0, 6), ("backward", 6, 16), ("step", 16, 17))
    ]
    happened = [
        (0, "unshard"), (4, "wait_for_unshard"), (6, "computed"), (6, "reshard"),
        (6, "unshard"), (10, "wait_for_unshard"), (12, "computed"), (12, "reshard"), (12, "reduce"),
    ]  # fmt: skip
    events = [SimpleNamespace(ns=ms * MS, unit="u", what=what) for ms, what in happened]
    return UnitRun(merge(1, [calls], label, spans), events, {"u": 3 * MILLION})
