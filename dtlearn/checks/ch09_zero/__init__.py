"""Checks of chapter 9."""

from __future__ import annotations

from dtlearn.grading import Case

from .. import MAY_HELP as MAY_HELP
from ..own_work import forbids, forbids_torchs

# Rules on the text of every answer.
READS = [
    forbids(
        "dtlearn.zero",
        "dtlearn.sharing",
        "dtlearn.data_parallel",
        "dtlearn.mixed_precision",
    ),
    forbids_torchs(  # its own sharded training
        "torch.distributed.optim.ZeroRedundancyOptimizer",
        "torch.distributed.optim.zero_redundancy_optimizer",
        "torch.distributed.fsdp",
        "torch.distributed._composable",
        "torch.distributed._tools",
        "torch.distributed.tensor",
        "torch.distributed._tensor",
        "torch.distributed.checkpoint",
        "torch.nn.parallel",
    ),
]


def groups_of(case: Case) -> list[list[int]]:
    """The ranks of each group: all are one, or, with "pairs", every other one, so that no group is in one piece."""
    n = case.world_size
    return [list(range(first, n, 2)) for first in range(2)] if "pairs" in case.params else [list(range(n))]
