"""A stage with its optimizer, and what its replicas do together: average gradients, or divide state by ZeRO 1, 2 or 3.

    zero            0             1                 2                    3
    averaged by     all-reduce    reduce-scatter    reduce-scatter in    reduce-scatter in
                    of a step     of a step         each backward pass   each backward pass
    then updated    everything    this rank's pieces, and a gather       this rank's shards, gathered when they are used

Stages 2 and 3 of ZeRO reduce after each micro-batch, since what they save is that no rank keeps whole gradients from
one micro-batch to the next: so m micro-batches send m times as much.

Replicas are all ranks with the same parameters and other tokens: dp x ep x cp of them, R. Experts that ep divides have
others, dp x cp, and an optimizer of their own over these. Rows of all ep ranks came to them, so their gradients are
sums of ep terms before anything is reduced: a mean over dp x cp, and divided by ep, is the mean over R.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from dtlearn.expert_parallel import expert_parameters, other_parameters
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

from .groups import AxisGroups
from .more_axes.experts import SomeParameters


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
        groups: of this rank.

    Attributes:
        module: the stage; its parameters have the names that they have in `GPT`.
        own: what has the parameters that are trained here: the stage, or some of its parameters.
        runs: what a pipeline calls: the stage, or its wrapper.
        replicas: the ranks that have the same.
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
        groups: AxisGroups,
    ) -> None:
        self.module, self.zero, self.tp, self.ep = module, zero, groups.tp, groups.ep
        self.own, self.replicas = self.choose(groups)
        self.runs: nn.Module = module
        self.dims = split_dims(module)
        if zero == 0:
            self.optimizer = self.inner = optimizer_class(self.own.parameters(), **options)
            self.sharded = ShardedParameters.of_module(self.own)
        elif zero in (1, 2):
            zero1 = ZeroRedundancyOptimizer(
                self.own.parameters(), optimizer_class, process_group=self.replicas, gradients="local", **options
            )
            self.runs = ShardedGradients(module, zero1) if zero == 2 else module
            self.sharded, self.inner = pieces_of_stage1(self.own, zero1, stage=zero)
            self.optimizer = zero1
        else:
            units = [ParallelBlock] if _has_blocks(module) else []
            self.runs = FullyShardedDataParallel(module, units=units, group=self.replicas)
            self.optimizer = self.inner = optimizer_class(self.runs.parameters(), **options)
            self.sharded = pieces_of_stage3(self.runs, group=self.replicas)

    def choose(self, groups: AxisGroups) -> tuple[nn.Module, dist.ProcessGroup]:
        """What is trained here, and its replicas: everything but experts that ep divides."""
        if rank_and_size(groups.ep)[1] == 1:
            return self.module, groups.dp
        return SomeParameters(self.module, other_parameters(self.module)), groups.dp

    @property
    def pieces(self) -> dict[str, torch.Tensor]:
        """What has this rank's gradients, by name: parameters of the stage, or this rank's pieces of them."""
        return dict(zip(self.sharded.names, self.sharded.pieces, strict=True))

    def counted(self, *, without: tuple[str, ...] = ()) -> Iterator[torch.Tensor]:
        """The pieces that this rank counts for the norm: over all ranks of the sum each element is counted once.

        Args:
            without: names of parameters that another stage counts.
        """
        if self.is_copy_along_ep():
            return
        is_first = rank_and_size(self.tp)[0] == 0
        for name, piece in self.pieces.items():
            if name not in without and (is_first or self.dims[name] is not None):
                yield piece

    def is_copy_along_ep(self) -> bool:
        """Whether an earlier ep rank has the same pieces. Under ZeRO replicas have different ones."""
        return self.zero == 0 and rank_and_size(self.ep)[0] > 0

    def reduce_gradients(self) -> None:
        """Reduce after the last backward pass: sum along tp what is partial, then average over the replicas."""
        if rank_and_size(self.tp)[1] > 1:  # of the whole stage, also of its experts
            if self.zero == 2:
                reduce_sequence_parallel_pieces(self.module, self.pieces, group=self.tp)
            else:
                reduce_sequence_parallel_gradients(self.module, group=self.tp)
        self.average()

    def average(self) -> None:
        """Average the gradients over the replicas; under ZeRO each rank gets its pieces of the mean."""
        if self.zero == 0 and rank_and_size(self.replicas)[1] > 1:
            average_over_replicas([self.own], group=self.replicas)
        elif isinstance(self.optimizer, ZeroRedundancyOptimizer):
            self.optimizer.shard_gradients()


class TrainedExperts(TrainedStage):
    """The experts of a stage that ep divides, their replicas and their optimizer; a `TrainedStage` has all else.

    **Communication**: as `TrainedStage` with `zero` 0 or 1, of E/ep experts over dp x cp.
    **Memory**: as there.

    Arguments and attributes: see there.
    """

    def choose(self, groups: AxisGroups) -> tuple[nn.Module, dist.ProcessGroup]:
        """The experts are trained here, and their replicas lie along dp and cp."""
        return SomeParameters(self.module, expert_parameters(self.module)), groups.expert_dp

    def is_copy_along_ep(self) -> bool:
        """Never: each ep rank has experts of its own."""
        return False

    def reduce_gradients(self) -> None:
        """Reduce after the stage's own `reduce_gradients`, which sums along tp."""
        with torch.no_grad():
            for parameter in self.own.parameters():
                if parameter.grad is not None:
                    parameter.grad /= rank_and_size(self.ep)[1]  # rows of all ep ranks came here
        self.average()


def _has_blocks(module: nn.Module) -> bool:
    return any(isinstance(part, ParallelBlock) for part in module.modules())
