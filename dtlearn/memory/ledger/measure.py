"""The memory of a training step, recorded: in this process, and on the ranks of a data-parallel run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from dtlearn.models.reference import Batch, LossFn
from dtlearn.runtime.device import device
from dtlearn.runtime.run import run_ranks

from .ledger import MemoryLedger
from .record import MemoryRecord


def record_step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batch: Batch,
    loss_fn: LossFn,
    *,
    set_to_none: bool = True,
) -> MemoryRecord:
    """Train on a batch twice, and record the second step, which is like all that follow.

    The first step makes the optimizer's state and, under DDP, the buckets. The record has the phases forward, backward,
    optimizer step and zero_grad. At its tick 0 there are the model, the state and the batch.

    **Communication**: what the model's wrapper does.
    **Memory**: that of the step. The ledger's own lists, some hundred bytes for each storage, are none of torch's.

    Args:
        model: wrapped in DDP or not; changed in place.
        optimizer: of its parameters.
        batch: inputs and targets, on the model's device.
        loss_fn: mean loss of (outputs, targets), ().
        set_to_none: as in `Optimizer.zero_grad`; False: gradients are set to zero and keep their memory.

    Raises:
        ValueError: the model is on the meta device.
    """
    inputs, targets = batch
    with MemoryLedger(model, optimizer, inputs=batch) as ledger:
        for step in ("first step", "second step"):
            with ledger.phase(step):
                with ledger.phase("forward"):
                    loss = loss_fn(model(inputs), targets)
                with ledger.phase("backward"):
                    loss.backward()
                with ledger.phase("optimizer step"):
                    optimizer.step()
                with ledger.phase("zero_grad"):
                    optimizer.zero_grad(set_to_none=set_to_none)
            del loss
    return ledger.record().inside("second step")


def record_on_ranks(
    world_size: int,
    make_model: Callable[[], nn.Module],
    make_optimizer: Callable[[Any], torch.optim.Optimizer],
    make_batch: Callable[[int], Batch],
    loss_fn: LossFn,
    *,
    wrap: Callable[[nn.Module], nn.Module] | None = None,
    set_to_none: bool = True,
) -> list[MemoryRecord]:
    """`record_step` on every rank of a fresh group: what each of them holds, and when.

    **Communication**: what `wrap` does, such as an all-reduce of each bucket of gradients.
    **Memory**: of rank r in entry r of the result.

    Args:
        world_size: number of ranks.
        make_model: builds the model; the random state is the same on all ranks before.
        make_optimizer: builds the optimizer from the parameters of the wrapped model.
        make_batch: a rank's own inputs and targets, from its number.
        loss_fn: mean loss of (outputs, targets), ().
        wrap: makes the model one that ranks train together, such as `DistributedDataParallel`; None: each for itself.
        set_to_none: as in `Optimizer.zero_grad`.

    Raises:
        RankError, RanksTimeout: as `run_ranks`.
    """
    result = run_ranks(
        _record_on_rank, world_size, make_model, make_optimizer, make_batch, loss_fn, wrap, set_to_none, timeout=300.0
    )
    return list(result.values)


def _record_on_rank(
    make_model: Callable[[], nn.Module],
    make_optimizer: Callable[[Any], torch.optim.Optimizer],
    make_batch: Callable[[int], Batch],
    loss_fn: LossFn,
    wrap: Callable[[nn.Module], nn.Module] | None,
    set_to_none: bool,
) -> MemoryRecord:
    torch.manual_seed(0)
    model = make_model().to(device())
    model = wrap(model) if wrap is not None else model
    inputs, targets = (tensor.to(device()) for tensor in make_batch(dist.get_rank()))
    optimizer = make_optimizer(model.parameters())
    return record_step(model, optimizer, (inputs, targets), loss_fn, set_to_none=set_to_none)
