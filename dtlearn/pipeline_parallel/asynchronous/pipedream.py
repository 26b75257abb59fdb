"""PipeDream on ranks: 1F1B over a whole run, without a flush, and an update after every backward pass.

    rank 0   0F0 0F1 0F2 0B0* 0F3 0B1* 0F4 0B2* 0F5 ...      p = 3; a star is an update of that rank's weights
    rank 1       1F0 1F1 1B0* 1F2 1B1* 1F3 1B2* 1F4 ...
    rank 2           2F0 2B0* 2F1 2B1* 2F2 2B2* 2F3 ...

Here every micro-batch counts as a batch of its own, with its own update. The pipeline fills once, so the bubble of a
long run vanishes. The price: rank r does its forward pass i with weights that lack the updates of the p - 1 - r
micro-batches before it, so gradients are those of a mixture of old weights. Losses are not those of one process.

Source: PipeDream (Harlap et al., 1806.03377); its vertical sync, an option that gives a micro-batch one version on all
ranks, is left out. PipeDream-2BW (Narayanan et al., 2006.09503) adds up gradients of m >= p micro-batches before an
update; then two versions are enough, and every stage lacks one update: `delayed` with a delay of 1 everywhere.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from dtlearn.models.reference import Batch, LossFn
from dtlearn.runtime.device import device

from ..actions import Op
from ..schedules.one_f_one_b import one_f_one_b
from .stashing import MakeOptimizer, StashingStage


@dataclass(frozen=True)
class AsynchronousRun:
    """What a rank saw of a run.

    Attributes:
        losses: of each micro-batch, on the last rank; elsewhere empty.
        missing: for each micro-batch, how many updates the weights of its forward pass lacked on this rank.
        num_versions: most versions of this rank's weights that were kept at once.
    """

    losses: list[float]
    missing: list[int]
    num_versions: int


def train_asynchronously(
    module: nn.Module,
    make_optimizer: MakeOptimizer,
    batches: Sequence[Batch],
    loss_fn: LossFn,
    *,
    stash: bool = True,
    group: dist.ProcessGroup | None = None,
    group_back: dist.ProcessGroup | None = None,
) -> AsynchronousRun:
    """Train this rank's stage on all micro-batches, in a pipeline that is never flushed. Call it on every rank.

    **Communication**: for each micro-batch and each boundary between ranks one message with the activations forward,
        and one with their gradient back; a header before the first one each way. Sends are posted and not waited for,
        so two neighbours may both send first. On gloo that blocks nobody. NCCL runs the messages of a group one after
        the other, so gradients need a group of their own there, `group_back`.
    **Memory**: min(m, p - r) live micro-batches on rank r, as in 1F1B, and p - r versions of its weights; the last p
        tensors that were sent to each neighbour.

    Args:
        module: the stage of this rank: rank r of the group has stage r.
        make_optimizer: of its parameters.
        batches: one for each micro-batch, all of one shape, the same on every rank; inputs are used on the first rank,
            targets on the last.
        loss_fn: of a micro-batch; not divided by anything, because each has its own update.
        stash: False: no weight stashing, to see what breaks.
        group, group_back: the pipeline's ranks, for activations and for gradients.
    """
    rank, num_ranks = dist.get_rank(group), dist.get_world_size(group)
    is_first, is_last = rank == 0, rank == num_ranks - 1
    stage, links = StashingStage(module, make_optimizer, stash=stash), _Links(group, group_back or group)
    losses: list[float] = []
    num_versions = 1
    for _, op, i in one_f_one_b(rank, num_ranks, len(batches)):
        if op == Op.F:
            x = batches[i][0] if is_first else links.receive(rank - 1)
            if is_last:
                loss = stage.forward(i, x, partial(_loss, loss_fn, batches[i][1]))
                losses.append(loss.item())
            else:
                links.send(stage.forward(i, x), rank + 1)
        else:
            gradient = stage.backward(i, None if is_last else links.receive(rank + 1))
            if gradient is not None and not is_first:
                links.send(gradient, rank - 1)
        num_versions = max(num_versions, stage.num_versions)
    links.finish()
    return AsynchronousRun(losses, stage.missing, num_versions)


def _loss(loss_fn: LossFn, targets: torch.Tensor, outputs: torch.Tensor) -> torch.Tensor:
    return loss_fn(outputs, targets)


class _Links:
    """Messages to and from neighbours; the first one to or from each tells the shape."""

    def __init__(self, group: dist.ProcessGroup | None, group_back: dist.ProcessGroup | None) -> None:
        self._rank, self._size = dist.get_rank(group), dist.get_world_size(group)
        self._groups = group, group_back
        self.told: set[int] = set()
        self.kinds: dict[int, tuple[torch.Size, torch.dtype]] = {}  # of what each neighbour sends
        self.sent = defaultdict[int, deque[tuple[dist.Work, torch.Tensor]]](deque)  # to each neighbour, not waited for

    def send(self, tensor: torch.Tensor, to: int) -> None:
        group = self._groups[to < self._rank]
        if to not in self.told:
            self.told.add(to)
            dist.send_object_list([(tensor.shape, tensor.dtype)], group_dst=to, group=group)
        work = dist.isend(tensor, group_dst=to, group=group)
        assert work is not None  # this rank is in the group
        self.sent[to].append((work, tensor))  # what is on its way must not be freed
        if len(self.sent[to]) > self._size:
            # So many micro-batches ago: in 1F1B the neighbour's answer to it is here, so this does not block.
            self.sent[to].popleft()[0].wait()

    def receive(self, source: int) -> torch.Tensor:
        group = self._groups[source > self._rank]
        if source not in self.kinds:
            kind: list[Any] = [None]
            dist.recv_object_list(kind, group_src=source, group=group)
            self.kinds[source] = kind[0]
        shape, dtype = self.kinds[source]
        tensor = torch.empty(shape, dtype=dtype, device=device())
        dist.recv(tensor, group_src=source, group=group)
        return tensor

    def finish(self) -> None:
        for sent in self.sent.values():
            while sent:
                sent.popleft()[0].wait()
