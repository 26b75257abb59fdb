"""What ranks have not sent yet (error feedback), when a job goes on with another number of ranks, as pure functions.

It is added to what another rank has not sent, so that nothing is lost. How the batch is shared says `batch_plan`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch


def ranks_to_merge(num_saved: int, num_ranks: int, rank: int) -> list[int]:
    """The ranks whose residuals one rank takes over: with 4 -> 2, rank 1 takes those of ranks 1 and 3.

    Args:
        num_saved: ranks that saved.
        num_ranks, rank: of those that load.
    """
    return list(range(rank, num_saved, num_ranks))


def merge_residuals(residuals: Sequence[torch.Tensor], num_saved: int, num_ranks: int) -> torch.Tensor:
    """What a rank keeps of the residuals that it takes over.

    The step is made with the mean of what all ranks send, so what is owed is the sum of residuals over N. N' ranks owe
    the same if each keeps N' / N times the sum of those that it takes over.

    Args:
        residuals: of the ranks in `ranks_to_merge`, each (n,).
        num_saved: N.
        num_ranks: N'.
    """
    total = torch.stack(list(residuals)).sum(dim=0)  # (n,)
    return total if num_saved == num_ranks else total * (num_ranks / num_saved)
