"""Whether ranks that should have values of their own have them: what nobody sees in a loss that goes down anyway."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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


def require_own_state(state: dict[str, Any], kind: str, *, group: dist.ProcessGroup | None = None) -> None:
    """Check that a state with residuals was kept by this rank, of as many ranks.

    Args:
        state: has "world_size" and "rank".
        kind: the class that it is of, for the message.

    Raises:
        ValueError: it is of another number of ranks, or of another rank.
    """
    size, rank = dist.get_world_size(group), dist.get_rank(group)
    if state["world_size"] != size:
        raise ValueError(
            f"this state was kept by one of {state['world_size']} ranks, and {size} train now: residuals belong to "
            f"their ranks. Begin with a new {kind}; what was kept is lost, several steps' gradients"
        )
    if state["rank"] != rank:
        raise ValueError(
            f"expected the state of rank {rank} of {size}, but this is that of rank {state['rank']}: what a rank has "
            "not sent yet is its own. Let every rank save and load a file of its own"
        )
