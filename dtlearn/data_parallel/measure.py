"""The time of a training step with different ways of averaging, in turns within one run.

The functions `..._on_rank` run on the ranks: `run_ranks(time_on_rank, 2, Workload(batch=256), 7, link=...)`. The rest
reads what they returned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as TorchDistributedDataParallel

from dtlearn.models.in_turns import Times, difference, time_in_turns
from dtlearn.models.mlp import MLP
from dtlearn.runtime.device import device, finish
from dtlearn.runtime.record.record import Record
from dtlearn.runtime.record.training_steps import part, recorded_steps
from dtlearn.runtime.recording.phases import phase

from .ddp import DistributedDataParallel
from .naive import NaiveDataParallel

LOCAL = "local"
TORCH = "torch's"
KINDS = (LOCAL, "naive", "ours", TORCH)
_WARM = 2  # steps that do not count: torch's DDP settles its buckets after the first
_TRIAL = (32, 128)  # batches whose times tell what a sample costs


@dataclass(frozen=True)
class Workload:
    """The model and the batch that are trained.

    Attributes:
        sizes: widths of an MLP. The default has 10.5 million parameters in ten layers of 4 MiB: enough of them that
            their gradients become ready one after the other.
        batch: samples of each rank.
        bucket_cap_mb: of ours and torch's; None: the default of both, 25 MiB after a first bucket of 1 MiB.
    """

    sizes: tuple[int, ...] = (1024,) * 11
    batch: int = 256
    bucket_cap_mb: float | None = None

    @property
    def num_parameters(self) -> int:
        return sum(a * b + b for a, b in pairwise(self.sizes))

    @property
    def nbytes(self) -> int:
        """Bytes of all gradients."""
        return 4 * self.num_parameters


def wrap(module: nn.Module, kind: str, bucket_cap_mb: float | None = None) -> nn.Module:
    """The module, averaged in one of `KINDS`.

    Raises:
        ValueError: another kind.
    """
    match kind:
        case "local":
            return module
        case "naive":
            return NaiveDataParallel(module)
        case "ours":
            if bucket_cap_mb is None:
                return DistributedDataParallel(module)
            # As torch's: with a cap of one's own, the first bucket has no smaller one.
            return DistributedDataParallel(module, bucket_cap_mb=bucket_cap_mb, first_bucket_mb=None)
        case "torch's":
            return TorchDistributedDataParallel(module, bucket_cap_mb=bucket_cap_mb)
    raise ValueError(f"kind must be one of {', '.join(KINDS)}; got {kind!r}")


def time_on_rank(work: Workload, rounds: int, kinds: Sequence[str] = KINDS) -> Times:
    """On each rank: a step of every kind, in turns.

    Args:
        work: what is trained.
        rounds: how often, after two that do not count.
        kinds: some of `KINDS`.

    Returns:
        Seconds of forward, backward and optimizer's step of each, on this rank; see `models/in_turns.py`.
    """
    return time_in_turns({kind: _step(work, kind) for kind in kinds}, rounds, _WARM)


def record_on_rank(work: Workload, kinds: Sequence[str] = KINDS[1:], rounds: int = 1) -> None:
    """On each rank of a recorded run: steps of every kind, in turns, each in a phase; see `fastest`."""
    steps = {kind: _step(work, kind) for kind in kinds}
    for step in steps.values():
        for _ in range(_WARM):
            step()
    for number in range(rounds):
        for kind, step in steps.items():
            dist.barrier()
            with phase(kind if rounds == 1 else f"{kind}, round {number}"):
                step()
                finish()


def fastest(record: Record, kind: str) -> Record:
    """The fastest recorded step of a kind, by its slowest rank: on a busy machine, the one that was disturbed least.

    Raises:
        ValueError: no step of that kind was recorded.
    """
    names = sorted({s.phase for s in record.spans if s.phase.partition(", round ")[0] == kind})
    if not names:
        raise ValueError(f"this record has no step of the kind {kind!r}")
    rounds = [part(record, name) for name in names]
    return min(
        rounds, key=lambda one: max(s.seconds for rank in range(one.world_size) for s in recorded_steps(one, rank))
    )


def batch_for(work: Workload, seconds: float) -> int:
    """On each rank, without an emulated link: the batch with which backward takes about so long.

    Two batches are tried, and the line through their best times taken; all ranks get the same answer.
    **Communication**: barriers, and one all-reduce of 8 bytes.
    """
    times = time_in_turns({str(batch): _backward(work, batch) for batch in _TRIAL}, 8, warm=0)
    small, large = (min(times[str(batch)]) for batch in _TRIAL)
    wanted = torch.tensor(samples_in(seconds, small, large), dtype=torch.float64, device=device())
    dist.all_reduce(wanted)
    return max(16, min(4096, round(wanted.item() / dist.get_world_size() / 16) * 16))


def samples_in(seconds: float, small: float, large: float) -> float:
    """The number of samples that take so long, from the seconds of the two trial batches.

    A sample costs part of what it seems to, as each backward also has costs of its own; how much depends on the
    machine, but on a busy one the line through both can lie anywhere: at least half is the samples'.
    """
    whole = large / _TRIAL[1]
    each = min(whole, max(whole / 2, (large - small) / (_TRIAL[1] - _TRIAL[0])))
    return _TRIAL[1] + (seconds - large) / each


def added(times: Mapping[str, Sequence[float]], kind: str) -> float:
    """Seconds that a step is longer than one without communication, median over the rounds.

    Exposed communication, and what else data parallelism costs: copies into buckets and out of them, the division, and
    cores that transfers share with the computation.
    """
    return difference(times[kind], times[LOCAL])


def _backward(work: Workload, batch: int) -> Callable[[], Any]:
    model, inputs, targets = _parts(work, batch)
    return partial(nn.functional.cross_entropy(model(inputs), targets).backward, retain_graph=True)


def _parts(work: Workload, batch: int) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    model = MLP(work.sizes).to(device())
    inputs = torch.randn(batch, work.sizes[0], device=device())  # (B, D_in)
    return model, inputs, torch.zeros(batch, dtype=torch.long, device=device())  # (B,)


def _step(work: Workload, kind: str) -> Callable[[], Any]:
    module, inputs, targets = _parts(work, work.batch)
    model = wrap(module, kind, work.bucket_cap_mb)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step() -> None:
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step
