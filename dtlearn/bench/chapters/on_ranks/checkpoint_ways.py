"""Saving and loading beside `torch.distributed.checkpoint`, on the ranks: a part of `dtlearn bench production`."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ....runtime.words import format_seconds
from ...figures import aligned

if TYPE_CHECKING:
    from ....models.in_turns import Times

# What each way does, of which the other is the counterpart: the same tensors, parts along dim 0, forced to the disk.
# Beside training, both keep the memory of their copy. What differs: ours makes a folder for each save and deletes the
# oldest, and torch writes over the files of one; ours loads into new memory, and torch into tensors that are there.
COUNTERPARTS = {
    "save": "save, torch's",
    "save beside training": "save beside training, torch's",
    "load": "load, torch's",
    "load other parts": "load other parts, torch's",
}
WAYS = tuple(way for pair in COUNTERPARTS.items() for way in pair)
STALLS = ("save", "save, torch's", "save beside training", "save beside training, torch's")
_TIMEOUT = 900.0


@dataclass(frozen=True)
class CheckpointSpeed:
    """What was measured.

    Attributes:
        where: what the ranks ran on.
        ranks: that save and load.
        nbytes: of all tensors together.
        seconds: of each way and round, on its slowest rank, until all is done.
        stalls: of the ways that save, what training waits.
        equal: whether every load gave what was saved, bit by bit.
    """

    where: str
    ranks: int
    nbytes: int
    seconds: Times
    stalls: Times
    equal: bool

    def ratios(self) -> dict[str, float]:
        """The ratio of our time to torch's, by our way: the median over the rounds."""
        from ....models.in_turns import ratio

        return {own: ratio(self.seconds[own], self.seconds[other]) for own, other in COUNTERPARTS.items()}

    def stall_ratio(self) -> float:
        """What training waits for a save beside it, to what it waits for a synchronous one."""
        from ....models.in_turns import ratio

        return ratio(self.stalls["save beside training"], self.stalls["save"])


def measure_checkpoints(ranks: int, rounds: int, num_tensors: int = 16, size: int = 512) -> CheckpointSpeed:
    """Every way on `ranks` ranks of the CPU, in turns, in a folder of its own for temporary files.

    Args:
        ranks: which divide `size`.
        rounds: how often each is timed.
        num_tensors, size: as many matrices of float32, size x size.
    """
    from ....models.in_turns import slowest
    from ....runtime.run import run_ranks

    with tempfile.TemporaryDirectory() as folder:
        arguments = folder, rounds, num_tensors, size
        run = run_ranks(time_on_rank, ranks, *arguments, device="cpu", timeout=_TIMEOUT)
    seconds, stalls = slowest([s for s, _, _ in run]), slowest([s for _, s, _ in run])
    nbytes = 4 * num_tensors * size * size
    return CheckpointSpeed(run.placement.where, ranks, nbytes, seconds, stalls, all(equal for *_, equal in run))


def time_on_rank(folder: str, rounds: int, num_tensors: int, size: int) -> tuple[Times, Times, bool]:
    """On each rank: seconds of every way until it is done, what training waits of those that save, and equality."""
    import torch.distributed as dist

    from ....models.in_turns import turns

    ways, equal = _ways(Path(folder), num_tensors, size)
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    stalls: dict[str, list[float]] = {way: [] for way in STALLS}
    for number, way in turns(WAYS, rounds + 1):
        dist.barrier()
        begun = time.perf_counter()
        finish = ways[way]()
        stalled = time.perf_counter() - begun
        finish()
        if number:  # the first round makes folders, groups and memory
            seconds[way].append(time.perf_counter() - begun)
            if way in stalls:
                stalls[way].append(stalled)
        ways["check"]()
    ways["close"]()
    return {k: tuple(v) for k, v in seconds.items()}, {k: tuple(v) for k, v in stalls.items()}, all(equal)


def _nothing() -> None:
    """Nothing is left to be done."""


def _ways(folder: Path, num_tensors: int, size: int) -> tuple[dict[str, Callable[[], Any]], list[bool]]:
    """What to do in each way, by name; it returns what ends it, once training has waited enough."""
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor, zeros

    from ....production.checkpoints.checkpointer import Checkpointer
    from ....sharing.resharding import even_part

    rank, num_ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    whole = {f"w{n}": torch.randn(size, size) for n in range(num_tensors)}
    shape = (size, size)
    parts = {n: (even_part(shape, 0, num_ranks, rank), w.chunk(num_ranks)[rank].flatten()) for n, w in whole.items()}
    mesh = init_device_mesh("cpu", (num_ranks,))
    theirs: dict[str, Any] = {name: distribute_tensor(w, mesh, [Shard(0)]) for name, w in whole.items()}
    now, beside = Checkpointer(folder / "now"), Checkpointer(folder / "beside", asynchronous=True)
    # Made before the clock runs: a training that resumes has its tensors, too.
    targets = {d: {name: zeros(shape, device_mesh=mesh, placements=[Shard(d)]) for name in whole} for d in (0, 1)}
    stager = DefaultStager(StagingOptions(False, False, False, False))  # as torch's own, but with memory that is kept
    equal: list[bool] = []
    loads: list[tuple[int, Callable[[str], Any]]] = []
    step = [0]
    now.save(0, parts)
    _save_theirs(dcp.save, theirs, folder / "theirs")

    def save(checkpointer: Checkpointer) -> Callable[[], None]:
        step[0] += 1
        checkpointer.save(step[0], parts)
        return checkpointer.wait

    def load(dim: int) -> Callable[[], None]:
        loaded = now.load(lambda manifest: {name: even_part(shape, dim, num_ranks, rank) for name in whole})
        assert loaded is not None
        loads.append((dim, loaded.tensors.__getitem__))
        return _nothing

    def load_theirs(dim: int) -> Callable[[], None]:
        dcp.load(targets[dim], checkpoint_id=folder / "theirs")
        loads.append((dim, lambda name: targets[dim][name].to_local()))
        return _nothing

    def check() -> None:
        """Outside of the clock; and let the next load find zeros."""
        for dim, local in loads:
            for name, matrix in whole.items():
                equal.append(torch.equal(local(name).flatten(), matrix.chunk(num_ranks, dim)[rank].flatten()))
                local(name).zero_()
        loads.clear()

    def save_theirs_beside() -> Callable[[], None]:
        save = partial(dcp.async_save, async_stager=stager)
        future = _save_theirs(save, theirs, folder / "theirs beside")
        return lambda: future.result() and None

    def close() -> None:
        stager.close()
        now.close()
        beside.close()

    return {
        "save": lambda: save(now),
        "save, torch's": lambda: _save_theirs(dcp.save, theirs, folder / "theirs") and _nothing,
        "save beside training": lambda: save(beside),
        "save beside training, torch's": save_theirs_beside,
        "load": lambda: load(0),
        "load, torch's": lambda: load_theirs(0),
        "load other parts": lambda: load(1),
        "load other parts, torch's": lambda: load_theirs(1),
        "check": check,
        "close": close,
    }, equal


def _save_theirs(function: Callable[..., Any], state: dict[str, Any], folder: Path) -> Any:
    """Save into the same folder each time: it is written over."""
    return function(state, checkpoint_id=folder)


def table_of(speed: CheckpointSpeed) -> list[str]:
    """Lines for a person."""
    rows = [("", "until done", "training waits", "to torch's")]
    ratios = speed.ratios()
    for way in WAYS:
        stall = format_seconds(statistics.median(speed.stalls[way])) if way in speed.stalls else ""
        ratio = f"{ratios[way]:.2f}x" if way in ratios else ""
        rows.append((way, format_seconds(statistics.median(speed.seconds[way])), stall, ratio))
    return [
        f"Checkpoints, {speed.where}, {speed.ranks} ranks, {speed.nbytes / 2**20:.0f} MiB in all; medians.",
        aligned(rows),
        f"Training waits {speed.stall_ratio():.2f}x as long for a save beside it as for a synchronous one.",
        f"Every load gave what was saved: {'yes' if speed.equal else 'NO'}.",
    ]
