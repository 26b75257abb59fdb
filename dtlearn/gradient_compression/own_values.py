"""Whether ranks that should have values of their own have them: what nobody sees in a loss that goes down anyway."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist

from dtlearn.sharing.flat_collectives import all_gather_single


def norms_of_ranks(tensors: Sequence[torch.Tensor], *, group: dist.ProcessGroup | None = None) -> torch.Tensor:
    """The sum of the squares of some tensors, of each rank: (N,), float64. Two ranks that differ differ there.

    **Communication**: one all-gather of 8 bytes. **Memory**: 8 bytes for each element of the largest tensor.
    """
    mine = torch.stack([t.detach().double().square().sum() for t in tensors]).sum(0, keepdim=True)  # (1,)
    norms = mine.new_empty(dist.get_world_size(group))  # (N,)
    all_gather_single(norms, mine, group=group)
    return norms


def all_alike(norms: torch.Tensor) -> bool:
    """Whether more than one rank has told its norm, and all have the same."""
    return len(norms) > 1 and bool((norms == norms[0]).all())
