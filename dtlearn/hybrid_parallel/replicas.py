"""A stage with its optimizer, and what its replicas do together: average gradients, or divide state by ZeRO 1, 2 or 3.

    zero            0             1                 2                    3
    averaged by     all-reduce    reduce-scatter    reduce-scatter in    reduce-scatter in
                    of a step     of a step         each backward pass   each backward pass
    then updated    everything    this rank's pieces, and a gather       this rank's shards, gathered when they are used

Stages 2 and 3 of ZeRO reduce after each micro-batch, since what they save is that no rank keeps whole gradients from
one micro-batch to the next: so m micro-batches send m times as much.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from dtlearn.pipeline_parallel.runner.gradients import average_over_replicas
from dtlearn.sharing.shards import rank_and_size
from dtlearn.tensor_parallel import reduce_sequence_parallel_gradients, reduce_sequence_parallel_pieces
from dtlearn.tensor_parallel.gpt import ParallelBlock
from dtlearn.tensor_parallel.layers.parameters import split_dims
from dtlearn.zero import (
    FullyShardedDataParallel,
    ShardedGradients,
    ShardedParameters,
    ZeroRedundancyOptimizer,
    pieces_of_stage1,
    pieces_of_stage3,
)


class TrainedStage:
    """A stage of the model, its replicas and its optimizer.

    **Communication** (n bytes of this rank's parameters of the stage, m micro-batches, d replicas; each rank sends
        (d-1)/d of what is named): `zero` 0: all-reduce of n, as 2n; 1: reduce-scatter of n and all-gather of n;
        2: m reduce-scatters of n, all-gather of n; 3: m times two all-gathers and a reduce-scatter of n. Under
        sequence parallelism one all-reduce of the marked gradients along tp.
    **Memory**: parameters n, gradients n, and the optimizer's state; of these each of d replicas has 1/d of the state
        (1), of the gradients too (2), of the parameters too (3).

    Args:
        module: the stage, on its device.
        zero: 0 to 3.
        optimizer_class, options: such as `torch.optim.AdamW`, `{"lr": 1e-3}`.
        tp, dp: this rank's groups.

    Attributes:
        module: the stage; its parameters have the names that they have in `GPT`.
        runs: what a pipeline calls: the stage, or its wrapper.
        dims: by name, the dim along which tp divides each parameter; None: it does not.
        sharded: by name, what this rank has of each parameter, as `dtlearn.zero` saves and loads it.
        inner: the optimizer that has the state.
    """

    def __init__(
        self,
        module: nn.Module,
        zero: int,
        optimizer_class: type[torch.optim.Optimizer],
        options: Mapping[str, Any],
        *,
        tp: dist.ProcessGroup,
        dp: dist.ProcessGroup,
    ) -> None:
        self.module, self.zero, self.tp, self.dp = module, zero, tp, dp
        self.runs: nn.Module = module
        self.dims = split_dims(module)
        if zero == 0:
            self.optimizer = self.inner = optimizer_class(module.parameters(), **options)
            self.sharded = ShardedParameters.of_module(module)
        elif zero in (1, 2):
            zero1 = ZeroRedundancyOptimizer(
                module.parameters(), optimizer_class, process_group=dp, gradients="local", **options
            )
            self.runs = ShardedGradients(module, zero1) if zero == 2 else module
            self.sharded, self.inner = pieces_of_stage1(module, zero1, stage=zero)
            self.optimizer = zero1
        else:
            self.runs = FullyShardedDataParallel(module, units=[ParallelBlock] if _has_blocks(module) else [], group=dp)
            self.optimizer = self.inner = optimizer_class(self.runs.parameters(), **options)
            self.sharded = pieces_of_stage3(self.runs, group=dp)

    @property
    def pieces(self) -> dict[str, torch.Tensor]:
        """By name, what has the gradients of this rank: parameters of the stage, or this rank's pieces of them."""
        return dict(zip(self.sharded.names, self.sharded.pieces, strict=True))

    def counted(self, *, without: tuple[str, ...] = ()) -> Iterator[torch.Tensor]:
        """Those pieces whose elements no other rank of the tp group counts: the norm of the model has each once.

        Args:
            without: names of parameters that another stage counts.
        """
        is_first = rank_and_size(self.tp)[0] == 0
        for name, piece in self.pieces.items():
            if name not in without and (is_first or self.dims[name] is not None):
                yield piece

    def reduce_gradients(self) -> None:
        """After the last backward pass: sums along tp where they are partial, then means over the replicas."""
        if rank_and_size(self.tp)[1] > 1:
            if self.zero == 2:
                reduce_sequence_parallel_pieces(self.module, self.pieces, group=self.tp)
            else:
                reduce_sequence_parallel_gradients(self.module, group=self.tp)
        if self.zero == 0 and rank_and_size(self.dp)[1] > 1:
            average_over_replicas([self.module], group=self.dp)
        elif isinstance(self.optimizer, ZeroRedundancyOptimizer):
            self.optimizer.shard_gradients()


def _has_blocks(module: nn.Module) -> bool:
    return any(isinstance(part, ParallelBlock) for part in module.modules())
