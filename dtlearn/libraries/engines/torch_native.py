"""One process, torch's DDP and torch's FSDP2: what they add to the page is precision, accumulation, recomputation."""

from __future__ import annotations

import contextlib

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

from dtlearn.runtime.recording.phases import phase

from ..description import RunDescription
from .base import (
    DTYPES,
    build_model,
    build_optimizer,
    loss_of,
    mean_over_ranks,
    own_micro_batches,
    recompute_blocks,
)


class TorchLoop:
    """Runs the loop that is written by hand around every model of torch: accumulate, clip, step.

    Args:
        model: wrapped or whole.
        replica: which rows of the global batch are this rank's; None: all of them.
        foreach: see `torch.optim.AdamW`; False where tensors and DTensors are mixed.

    **Communication**: that of the wrapper; and with clipping, the norm's.
    **Memory**: fp32 weights, gradients and two moments of Adam for what this rank holds: 16 bytes a parameter.
    """

    def __init__(self, run: RunDescription, model: nn.Module, replica: int | None, foreach: bool | None = None) -> None:
        self.run, self.model, self.replica = run, model, replica
        self.optimizer = build_optimizer(run, model, foreach=foreach)
        self.scaler = torch.amp.GradScaler("cpu", enabled=run.precision == "fp16")

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        dtype = DTYPES[self.run.precision]
        with torch.autocast(tokens.device.type, dtype, enabled=dtype is not torch.float32):
            logits = self.model(tokens)
        return loss_of(logits, targets)

    def synchronised(self, is_last: bool) -> contextlib.AbstractContextManager[None]:
        """Gradients of micro-batches before the last stay here."""
        if isinstance(self.model, FSDPModule):
            self.model.set_requires_gradient_sync(is_last)
        if isinstance(self.model, DistributedDataParallel) and not is_last:
            return self.model.no_sync()
        return contextlib.nullcontext()

    def step(self, tokens: torch.Tensor, targets: torch.Tensor) -> float:
        parts = own_micro_batches(self.run, tokens, targets, self.replica or 0)
        total = torch.zeros(())
        for number, (own_tokens, own_targets) in enumerate(parts, 1):
            with self.synchronised(number == len(parts)):
                loss = self.forward(own_tokens, own_targets) / len(parts)
                self.scaler.scale(loss).backward()
            total += loss.detach().cpu()
        with phase("update"):
            if self.run.clipping:
                self.scaler.unscale_(self.optimizer)
                nn.utils.clip_grad_norm_(self.model.parameters(), self.run.clipping)
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.optimizer.zero_grad()
        return total.item() if self.replica is None else mean_over_ranks(total)


def reference(run: RunDescription) -> TorchLoop:
    """One process with the whole batch: what all others must equal."""
    model = build_model(run)
    if run.recompute:
        recompute_blocks(model)
    return TorchLoop(run, model, None)


def ddp(run: RunDescription) -> TorchLoop:
    """torch's DistributedDataParallel (chapter 3).

    **Communication**: one all-reduce of all gradients in fp32 buckets, during backward.
    """
    model = build_model(run)
    if run.recompute:
        recompute_blocks(model)
    return TorchLoop(run, DistributedDataParallel(model), dist.get_rank())


class FSDP2Loop(TorchLoop):
    """Casts in FSDP2's own way: parameters before their all-gather, so that they travel in 16 bits."""

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return loss_of(self.model(tokens), targets)


def fsdp2(run: RunDescription, reshard: bool = True) -> TorchLoop:
    """torch's `fully_shard` (chapter 9), a unit for each block and one for the rest.

    Args:
        reshard: False keeps the units whole between forward and backward, as ZeRO 2 does.

    **Communication**: all-gather of each unit in forward and, with `reshard`, again in backward but for the outermost
    unit, which stays; a reduce-scatter of each.
    """
    model = build_model(run)
    if run.recompute:
        recompute_blocks(model)
    dtype = None if run.precision == "fp32" else DTYPES[run.precision]
    mixed = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=dtype and torch.float32)
    offload = CPUOffloadPolicy(pin_memory=False) if run.offload_parameters else OffloadPolicy()
    for unit in (*model.blocks, model):
        fully_shard(unit, mp_policy=mixed, offload_policy=offload, reshard_after_forward=None if reshard else False)
    return FSDP2Loop(run, model, dist.get_rank())
