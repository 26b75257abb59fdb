"""What must be so on all ranks before a pipeline runs: as many ranks as in the schedule, and the same one on each."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

import torch
import torch.distributed as dist
from torch import nn

from dtlearn.runtime.device import device

from ..schedule import Schedule
from ..text import format_schedule
from .gradients import Tied


def module_of(stages: Sequence[nn.Module] | Mapping[int, nn.Module], stage: int, rank: int) -> nn.Module:
    """The module of a stage that this rank holds. Raises ValueError if it was not given."""
    try:
        return stages[stage]
    except (KeyError, IndexError):
        raise ValueError(f"rank {rank} holds stage {stage}, and there is no module for it in `stages`") from None


def recomputed_stages(recompute: bool | Collection[int], num_stages: int) -> frozenset[int]:
    """The stages that compute their activations again: all, none, or those named. Raises ValueError if one is not."""
    if isinstance(recompute, bool):
        return frozenset(range(num_stages if recompute else 0))
    if unknown := sorted(set(recompute) - set(range(num_stages))):
        raise ValueError(f"recompute names stages {unknown}; the schedule has the {num_stages} stages from 0 on")
    return frozenset(recompute)


def require_tied(
    stages: Sequence[nn.Module] | Mapping[int, nn.Module], tied: Tied, placement: Sequence[int] | None = None
) -> None:
    """Refuse a parameter of several stages of which nobody says that it is one: each rank would train its own copy.

    Args:
        stages: those that are at hand.
        tied: two stages with the name of a parameter that they share; () for none.
        placement: for each stage its rank, where that is known: a rank's stages may share what they like.

    Raises:
        ValueError: a trained parameter lies in stages of several ranks, and is not `tied`.
    """
    places = defaultdict[int, dict[int, str]](dict)
    for stage, module in stages.items() if isinstance(stages, Mapping) else enumerate(stages):
        for name, parameter in module.named_parameters():
            if parameter.requires_grad:
                places[id(parameter)][stage] = name
    for names in places.values():
        ranks = {placement[stage] for stage in names} if placement else set(names)
        if len(ranks) > 1 and set(names.items()) != set(tied):
            where = " and ".join(f"{name!r} of stage {stage}" for stage, name in names.items())
            todo = f"give tied={tuple(names.items())}, here and to PipelineRunner, which adds up the two gradients"
            if len(names) > 2 or tied:
                todo = "cut the model so that they lie in one stage: `tied` takes one parameter of two stages"
            raise ValueError(f"{where} are one parameter, and each rank would train a copy of its own: {todo}")


def require_same_schedule(schedule: Schedule, group: dist.ProcessGroup | None) -> None:
    """Refuse ranks that do not fit. The first call in the group is one of all ranks, as NCCL wants it.

    **Communication**: an all-gather of 8 bytes.

    Raises:
        ValueError: the group has another number of ranks, or this one is not in it.
        RuntimeError: a rank has another schedule. Every rank raises it.
    """
    if dist.get_rank(group) < 0 or dist.get_world_size(group) != schedule.num_ranks:
        raise ValueError(
            f"{schedule.name} is for {schedule.num_ranks} ranks; this is rank {dist.get_rank(group)} of a group of "
            f"{dist.get_world_size(group)}"
        )
    text = f"{format_schedule(schedule)} {schedule.placement} {schedule.num_microbatches}"
    mine = torch.tensor([zlib.crc32(text.encode())], device=device())
    others = [torch.empty_like(mine) for _ in schedule.orders]
    dist.all_gather(others, mine, group=group)
    if different := [rank for rank, other in enumerate(others) if not torch.equal(other, others[0])]:
        raise RuntimeError(f"rank {different[0]} has another schedule than rank 0: make the same one on every rank")
