"""What runs of communication scheduling on the ranks: steps of each way, of a model whose layers take given times."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as TorchDDP

from ....communication_scheduling.emulated import paced_model
from ....communication_scheduling.policy import GradientPartition, SchedulingPolicy
from ....communication_scheduling.simulate import LayerTimes, ScheduledStep
from ....communication_scheduling.wrapper import PriorityDataParallel

if TYPE_CHECKING:
    from ....models.in_turns import Times

DDP, FIFO, PLANNED, DECIDED = "torch's DDP", "FIFO", "planned priority", "decided priority"
# Whole layers, forward waits for all: as torch's, but one in flight, as with priority, so that only the order differs.
FIFO_POLICY = SchedulingPolicy("fifo", credit_bytes=1, barrier=True)
STEPS = 3  # in each time that is taken
_LR = 0.01
_WIDTH = 8  # of a sample in such a model


class OnRank(NamedTuple):
    """What a rank found.

    Attributes:
        times: seconds of STEPS steps of each way, in each round.
        last: the last step of each way but torch's.
    """

    times: Times
    last: dict[str, ScheduledStep]


def time_policies(
    times: LayerTimes,
    priority: SchedulingPolicy,
    orders: Mapping[str, Sequence[GradientPartition]],
    rounds: int,
) -> OnRank:
    """On each rank: steps of all ways, in turns. A step is backward, what is sent, and the next forward pass.

    **Communication**: that of the ways, and a barrier before each time that is taken.
    **Memory**: a model for each way.

    Args:
        times: of the model's layers.
        priority: the policy beside FIFO with a barrier.
        orders: of FIFO's partitions, and of the planned ones.
        rounds: how often each way is timed, after a round that does not count.
    """
    from ....models.in_turns import time_in_turns

    ours = {
        name: PriorityDataParallel(paced_model(times), _sgd, policy, order=orders.get(name))
        for name, policy in {FIFO: FIFO_POLICY, PLANNED: priority, DECIDED: priority}.items()
    }
    torchs = TorchDDP(paced_model(times), bucket_cap_mb=max(times.nbytes) / 2**20)  # a bucket for each layer
    ways = {DDP: _training(torchs, _sgd(torchs.parameters()))} | {name: _training(own) for name, own in ours.items()}
    taken = time_in_turns(ways, rounds)
    return OnRank(taken, {name: own.last_step() for name, own in ours.items()})


def _sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=_LR)


def _training(model: nn.Module, optimizer: torch.optim.Optimizer | None = None) -> Callable[[], None]:
    """STEPS times backward, the optimizer's step, the next forward pass. The first forward pass is made here."""
    inputs = torch.ones(1, _WIDTH)
    losses = [model(inputs).mean()]

    def steps() -> None:
        for _ in range(STEPS):
            losses.pop().backward()
            if optimizer is not None:
                optimizer.step()
                optimizer.zero_grad()
            losses.append(model(inputs).mean())

    return steps
