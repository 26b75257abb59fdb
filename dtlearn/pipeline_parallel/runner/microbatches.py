"""A batch in micro-batches, on the ranks that need it: the first stage's has the inputs, the last one's the targets."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ..schedule import Schedule
from .losses import NumTerms, shares_of


@dataclass(frozen=True)
class Microbatches:
    """What this rank has of a batch.

    Attributes:
        inputs: of each micro-batch, on the rank of the first stage; else ().
        targets: of each, on the rank of the last stage; else ().
        shares: on that rank, how much the mean loss of each counts in that of the batch, see `shares_of`.
    """

    inputs: tuple[torch.Tensor, ...] = ()
    targets: tuple[torch.Tensor, ...] = ()
    shares: tuple[float, ...] = ()


def cut(
    schedule: Schedule,
    rank: int,
    inputs: torch.Tensor | None,
    targets: torch.Tensor | None,
    *,
    num_terms: NumTerms | None = None,
    needs_targets: bool = True,
) -> Microbatches:
    """Cut a batch along its first dimension; with N rows in m parts, the first N mod m have a row more.

    Args:
        schedule: says m, and who needs what.
        rank: this one.
        inputs, targets: of the whole batch; what this rank does not need is not looked at.
        num_terms: as in `shares_of`.

    Raises:
        ValueError: something is missing on this rank, there are fewer rows than micro-batches, or on one rank inputs
            and targets with different numbers of rows; see also `shares_of`.
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
    rows = {name: sum(map(len, of_microbatches)) for name, of_microbatches in parts.items() if of_microbatches}
    if len(set(rows.values())) > 1:
        raise ValueError(f"inputs have {rows['inputs']} rows, targets {rows['targets']} (rank {rank})")
    shares = shares_of(parts["targets"], num_terms) if parts["targets"] else ()
    return Microbatches(parts["inputs"], parts["targets"], shares)
