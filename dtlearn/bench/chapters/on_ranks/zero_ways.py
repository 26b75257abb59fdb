"""The ways in which a model is trained by ZeRO and by torch, and what runs of them on the ranks: for `zero`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import torch
    from torch import nn

    from ....memory.saving.variants import GPTWorkload
    from ....models.in_turns import Times
    from ....runtime.record.record import Record
    from ....zero.partition.partition import Partition

# Ours, and what of torch is nearest to it: both keep the parameters of stage 2 from forward to backward.
COUNTERPARTS = {
    "stage 0": "torch's DDP",
    "stage 1": "torch's ZeroRedundancyOptimizer",
    "stage 2": "torch's fully_shard, kept",
    "stage 3": "torch's fully_shard",
}
WAYS = (*COUNTERPARTS, *COUNTERPARTS.values())
_WARM = 2  # steps that do not count: the first makes the optimizer's state, and torch's DDP settles its buckets
_STATE = ("parameters", "gradients", "optimizer state")


class Stored(NamedTuple):
    """Bytes on the rank that has most.

    Attributes:
        state: parameters, gradients and optimizer's state, between backward and the optimizer's step.
        formula: of the same; None for torch's.
        peak: of the whole step, with activations and all else.
    """

    state: int
    formula: int | None
    peak: int


class SentBytes(NamedTuple):
    """Bytes that a rank sends in a step, in a ring.

    Attributes:
        recorded: from the calls of a recorded step.
        formula: None for torch's.
    """

    recorded: float
    formula: float | None


class Way(NamedTuple):
    """A model to train, in one of `WAYS`.

    Attributes:
        partition: None for torch's.
        kept: buckets of it that stay gathered from forward to backward.
    """

    model: nn.Module
    optimizer: torch.optim.Optimizer
    partition: Partition | None = None
    kept: frozenset[int] = frozenset()


def build(way: str, work: GPTWorkload, cap: int) -> Way:
    """The same model on every rank, to be trained in this way by Adam."""
    import torch
    import torch.distributed as dist
    from torch.distributed.optim import ZeroRedundancyOptimizer as TorchZeroRedundancyOptimizer
    from torch.nn.parallel import DistributedDataParallel as TorchDDP

    from ....data_parallel.ddp import DistributedDataParallel
    from ....models import GPT
    from ....models.gpt import Block
    from ....zero import FullyShardedDataParallel, ShardedGradients, ZeroRedundancyOptimizer, plan_flat

    torch.manual_seed(0)
    model, adam = GPT(work.config), torch.optim.Adam
    match way:
        case "stage 0":
            partition = plan_flat([p.numel() for p in model.parameters()], dist.get_world_size())
            return Way(DistributedDataParallel(model), adam(model.parameters()), partition)
        case "stage 1":
            wrapped, zero = DistributedDataParallel(model), ZeroRedundancyOptimizer(model.parameters(), adam)
            return Way(wrapped, zero, zero.flat.partition)
        case "stage 2":
            zero = ZeroRedundancyOptimizer(model.parameters(), adam, gradients="local", cap=cap)
            return Way(ShardedGradients(model, zero), zero, zero.flat.partition)
        case "stage 3":
            sharded = FullyShardedDataParallel(model, units=(Block,), reshard_after_forward=None)
            kept = frozenset(bucket.bucket.index for bucket in sharded.units[0].buckets)
            return Way(sharded, adam(sharded.parameters()), sharded.partition, kept)
        case "torch's DDP":
            return Way(TorchDDP(model), adam(model.parameters()))
        case "torch's ZeroRedundancyOptimizer":
            return Way(TorchDDP(model), TorchZeroRedundancyOptimizer(model.parameters(), adam))
    return _fully_sharded(model, reshard_after_forward=False if way.endswith("kept") else None)


def _fully_sharded(model: Any, reshard_after_forward: bool | None) -> Way:
    import torch
    from torch.distributed.fsdp import fully_shard

    for module in (*model.blocks, model):
        fully_shard(module, reshard_after_forward=reshard_after_forward)
    return Way(model, torch.optim.Adam(model.parameters()))


def bytes_on_rank(work: GPTWorkload, cap: int) -> tuple[dict[str, Stored], dict[str, float]]:
    """On each rank of a recorded run: what it stores in each way; and of each stage, the bytes that it is to send."""
    from ....memory.ledger.ledger import MemoryLedger
    from ....models import next_token_loss
    from ....runtime.recording.phases import phase

    inputs, targets = _batch(work)
    stored, sent = {}, {}
    for name in WAYS:
        way = build(name, work, cap)
        step = _step(way, work)
        for _ in range(_WARM):
            step()
        holder = getattr(way.optimizer, "optim", way.optimizer)  # torch's shows its state there only
        with phase(name), MemoryLedger(way.model, holder, inputs=(inputs, targets)) as ledger:
            next_token_loss(way.model(inputs), targets).backward()
            record = ledger.record()
            way.optimizer.step()
        formula = None
        if way.partition is not None:
            formula, sent[name] = _formulas(name, way)
        state = sum(a.bytes for a in record.at(record.clock) if a.category in _STATE)
        stored[name] = Stored(state, formula, ledger.peak)
        del way, holder, step, record, ledger
    return stored, sent


def _formulas(name: str, way: Way) -> tuple[int, float]:
    """Bytes that this rank is to store, and to send."""
    import torch.distributed as dist

    from ....memory.arithmetic.training_state import CONVENTIONS
    from ....zero.arithmetic.state_bytes import state_bytes
    from ....zero.arithmetic.traffic import sent_bytes, step_traffic

    assert way.partition is not None
    stage, rank = int(name[-1]), dist.get_rank()
    # torch's Adam keeps 4 bytes more for each tensor: the number of its steps.
    stored = state_bytes(way.partition, stage, CONVENTIONS["fp32 Adam"], rank=rank, per_tensor=4)
    calls = step_traffic(way.partition, stage, gradients="averaged" if stage == 1 else "local", kept=way.kept)
    return sum(stored.values()), sent_bytes(calls)


def sent_in(record: Record, way: str) -> float:
    """Bytes that rank 0 sends in a phase of the record, if every collective is a ring."""
    from ....runtime.record.training_steps import part
    from ....viz.zero.traffic_by_stage import sent_by_operation

    return sum(sent_by_operation(part(record, way)).values())


def time_on_rank(work: GPTWorkload, cap: int, rounds: int) -> Times:
    """On each rank: seconds of a step in each of `WAYS`, in turns."""
    from ....models.in_turns import time_in_turns

    return time_in_turns({name: _step(build(name, work, cap), work) for name in WAYS}, rounds, _WARM)


def _step(way: Way, work: GPTWorkload) -> Callable[[], None]:
    from ....models import next_token_loss

    inputs, targets = _batch(work)

    def step() -> None:
        next_token_loss(way.model(inputs), targets).backward()
        way.optimizer.step()
        way.optimizer.zero_grad()

    return step


def _batch(work: GPTWorkload) -> tuple[torch.Tensor, torch.Tensor]:
    import torch

    tokens = torch.randint(work.config.vocab_size, (work.batch, work.config.context_length + 1))  # (B, T + 1)
    return tokens[:, :-1], tokens[:, 1:]
