"""A run on the ranks: train, count the bytes, take the time."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch.distributed as dist

from dtlearn.memory.ledger.storage_ledger import StorageLedger
from dtlearn.runtime.recording.phases import phase

from ..description import RunDescription
from ..engines.base import batches
from ..engines.registry import make_engine

TIMED_STEPS = 3


def step_name(run: RunDescription) -> str:
    """The phase of the step that is looked at: the last one, when everything that is made once is made."""
    return f"step {run.steps - 1}"


@dataclass(frozen=True)
class RankResult:
    """What one rank found; see `LibraryResult`."""

    losses: tuple[float, ...]
    state_bytes: int
    peak_bytes: int
    seconds: float


def run_on_rank(name: str, run: RunDescription) -> RankResult:
    """Train with an engine on this rank.

    The bytes are those of a `StorageLedger`, which counts what torch's dispatcher hands out, the same on every machine.
    The seconds are of more steps after those that count, without the ledger.
    """
    losses: list[float] = []
    data = list(batches(run))
    with StorageLedger() as ledger:
        with phase("setup"):
            engine = make_engine(name, run)
        for number, batch in enumerate(data):
            ledger.peak = ledger.now
            with phase(f"step {number}"):
                losses.append(engine.step(*batch))
    state, peak = ledger.now, ledger.peak
    seconds = []
    for _ in range(TIMED_STEPS):
        dist.barrier()
        begun = time.perf_counter()
        engine.step(*data[-1])
        seconds.append(time.perf_counter() - begun)
    dist.barrier()  # nobody leaves while another one may still be in a call
    return RankResult(tuple(losses), state, peak, min(seconds))
