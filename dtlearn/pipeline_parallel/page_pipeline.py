"""A pipeline on a page: each rank has one stage of the model, and plays its actions of a schedule.

F of a micro-batch receives x from the rank before, computes y = stage(x), and sends y to the next
rank. B receives dy from the next rank, computes dx, and sends dx to the rank before.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from dtlearn.pipeline_parallel.actions import Action, Op


def run_schedule(
    actions: Iterable[Action],
    stage: nn.Module,
    inputs: Sequence[torch.Tensor],
    targets: Sequence[torch.Tensor],
    loss_fn: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    shape: tuple[int, ...],
    *,
    groups: Sequence[dist.ProcessGroup | None] = (None, None),
) -> list[torch.Tensor]:
    """Train on one batch in m equal micro-batches: adds the gradient of its mean loss to `.grad`.

    **Communication**: of each micro-batch, y to the next rank and dy back: 2m messages for each
        pair of neighbours. NCCL runs a group's messages in order, so there dy has its own group.
    **Memory**: what autograd saves of each micro-batch between its F and its B; what was sent.

    Args:
        actions: F and B of this rank, in order, as `gpipe` and `one_f_one_b` make them.
        stage: of this rank; rank r of the group has stage r of the model.
        inputs, targets: m micro-batches; the first rank reads the inputs, the last one the targets.
        loss_fn: mean loss of (outputs, targets) of a micro-batch, ().
        shape: of what each stage hands to the next one; its dtype is that of the parameters.
        groups: of the ranks, for y and for dy.

    Returns: on the last rank the loss of each micro-batch, divided by m.
    """
    rank, last = dist.get_rank(groups[0]), dist.get_world_size(groups[0]) - 1
    live: dict[int, Any] = {}  # by micro-batch, from its F to its B: x and y
    losses, sends = list[torch.Tensor](), list[Any]()

    def receive(src: int) -> torch.Tensor:
        tensor = next(stage.parameters()).new_empty(shape)  # on the device of the stage
        dist.recv(tensor, group_src=src, group=groups[src > rank])
        return tensor

    def send(tensor: torch.Tensor, dst: int) -> None:
        # Not waited for: in 1F1B two neighbours have something for each other, and both send first.
        way = groups[dst < rank]
        sends.append(dist.isend(tensor.detach().contiguous(), group_dst=dst, group=way))

    def forward(m: int) -> None:
        x = inputs[m] if rank == 0 else receive(rank - 1).requires_grad_()  # (b, ...)
        y = stage(x)  # (b, ...)
        if rank < last:
            send(y, rank + 1)
        else:
            y = loss_fn(y, targets[m]) / len(targets)  # (), its part of the mean of the batch
            losses.append(y.detach())
        live[m] = x, y

    def backward(m: int) -> None:
        x, y = live.pop(m)
        y.backward(receive(rank + 1) if rank < last else None)  # dy, (b, ...)
        if rank > 0:
            send(x.grad, rank - 1)  # dx, (b, ...)

    for _, op, microbatch in actions:
        if op == Op.F:  # an action may be a plain tuple, such as (0, "F", 0)
            forward(microbatch)
        else:
            backward(microbatch)
    for work in sends:
        work.wait()
    return losses
