"""A batch in micro-batches, on the ranks that need it: the first stage's has the inputs, the last one's the targets."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ..schedule import Schedule


@dataclass(frozen=True)
class Microbatches:
    """What this rank has of a batch.

    Attributes:
        inputs: of each micro-batch, on the rank of the first stage; else ().
        targets: of each, on the rank of the last stage; else ().
        shares: on that rank, the part of the batch's rows that each has: 1/m, if they have equally many. The mean loss
            of the batch is the sum of the micro-batches' mean losses, each times its share.
    """

    inputs: tuple[torch.Tensor, ...] = ()
    targets: tuple[torch.Tensor, ...] = ()
    shares: tuple[float, ...] = ()


def cut(
    schedule: Schedule,
    rank: int,
    inputs: torch.Tensor | None,
    targets: torch.Tensor | None,
    needs_targets: bool = True,
) -> Microbatches:
    """Cut a batch along its first dimension; with N rows in m parts, the first N mod m have a row more.

    Args:
        schedule: says m, and who needs what.
        rank: this one.
        inputs, targets: of the whole batch; what this rank does not need is not looked at.

    Raises:
        ValueError: something is missing on this rank, or there are fewer rows than micro-batches.
    """
    mine, m = schedule.stages_of(rank), schedule.num_microbatches
    parts = dict[str, tuple[torch.Tensor, ...]]()
    for name, batch, stage in (("inputs", inputs, 0), ("targets", targets, schedule.num_stages - 1)):
        parts[name] = ()
        if stage not in mine or (name == "targets" and not needs_targets):
            continue
        if batch is None:
            raise ValueError(f"rank {rank} holds stage {stage} and needs the {name} of the batch; got None")
        if len(batch) < m:
            raise ValueError(f"a batch of {len(batch)} rows cannot be cut into {m} micro-batches (rank {rank}, {name})")
        parts[name] = batch.tensor_split(m)
    shares = tuple(len(part) / len(targets) for part in parts["targets"]) if targets is not None else ()
    return Microbatches(parts["inputs"], parts["targets"], shares)
