"""Whether ranks that should have values of their own have them: what nobody sees in a loss that goes down anyway."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist

from dtlearn.sharing.flat_collectives import all_gather_single


def squared_norm(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """The sum of the squares of all elements: (1,), float64. Tensors that differ differ there."""
    return torch.stack([t.detach().double().square().sum() for t in tensors]).sum(0, keepdim=True)


def norms_of_ranks(tensors: Sequence[torch.Tensor], *, group: dist.ProcessGroup | None = None) -> torch.Tensor:
    """The `squared_norm` of each rank: (N,).

    **Communication**: one all-gather of 8 bytes. **Memory**: 8 bytes for each element of the largest tensor.
    """
    mine = squared_norm(tensors)  # (1,)
    norms = mine.new_empty(dist.get_world_size(group))  # (N,)
    all_gather_single(norms, mine, group=group)
    return norms


def all_alike(norms: torch.Tensor) -> bool:
    """Whether more than one rank has told its norm, and all have the same."""
    return len(norms) > 1 and bool((norms == norms[0]).all())
