"""FairScale's tensor parallel layers, and its OSS with ShardedDataParallel: ZeRO before torch had it."""

from __future__ import annotations

import importlib

import torch
import torch.distributed as dist
from torch import nn

from dtlearn.runtime.recording.phases import phase

from ..description import RunDescription
from .base import build_model, loss_of, mean_over_ranks, own_micro_batches, refuse
from .foreign_layers import divide_blocks
from .torch_native import TorchLoop


def fairscale_tp(run: RunDescription) -> TorchLoop:
    """Tensor parallelism by FairScale's layers, which were Megatron's once, on all ranks.

    **Communication**: as `megatron_tp`.
    """
    refuse(run, "fairscale_tp", tp=run.world_size, precision="fp32", clipping=0.0, recompute=False)
    library = importlib.import_module("fairscale.nn.model_parallel")
    layers = importlib.import_module("fairscale.nn.model_parallel.layers")
    library.initialize_model_parallel(run.tp)

    def column(inputs: int, outputs: int) -> nn.Module:
        layer: nn.Module = layers.ColumnParallelLinear(inputs, outputs, gather_output=False)
        return layer

    def row(inputs: int, outputs: int) -> nn.Module:
        layer: nn.Module = layers.RowParallelLinear(inputs, outputs, input_is_parallel=True)
        return layer

    model = build_model(run)
    divide_blocks(model, column, row, dist.get_rank(), run.tp)
    return TorchLoop(run, model, replica=0)


class FairScaleOSS:
    """OSS divides the optimizer's state by whole tensors; ShardedDataParallel reduces each gradient to its owner.

    With `reduce_buffer_size` left at its default and `optimizer.zero_grad()` in the loop, the losses are wrong without
    a word (FairScale 0.4.13): gradients live in its buckets, and the model's own `zero_grad` has to clear them.

    **Communication**: a reduce of each gradient to its owner, and a broadcast of what each rank has updated.
    """

    def __init__(self, run: RunDescription) -> None:
        refuse(run, "fairscale_oss", tp=1, pp=1, accumulation=1, precision="fp32", clipping=0.0, recompute=False)
        oss = importlib.import_module("fairscale.optim").OSS
        wrapper = importlib.import_module("fairscale.nn.data_parallel").ShardedDataParallel
        model = build_model(run)
        kind = torch.optim.AdamW if run.optimizer == "adamw" else torch.optim.SGD
        self.run = run
        self.optimizer = oss(model.parameters(), optim=kind, lr=run.lr, weight_decay=run.weight_decay)
        self.model = wrapper(model, self.optimizer, reduce_buffer_size=0)

    def step(self, tokens: torch.Tensor, targets: torch.Tensor) -> float:
        ((own_tokens, own_targets),) = own_micro_batches(self.run, tokens, targets, dist.get_rank())
        self.model.zero_grad()
        loss = loss_of(self.model(own_tokens), own_targets)
        loss.backward()
        with phase("update"):
            self.optimizer.step()
        return mean_over_ranks(loss)


def fairscale_oss(run: RunDescription) -> FairScaleOSS:
    """See `FairScaleOSS`."""
    return FairScaleOSS(run)
