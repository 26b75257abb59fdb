"""Checks of chapter 5."""

from __future__ import annotations

from dtlearn.grading import Case

from .. import MAY_HELP as MAY_HELP
from ..own_work import forbids, forbids_torchs

# Rules on the text of every answer. Hooks are tried under the course's DDP: its folder stays in sight.
READS = [
    forbids("dtlearn.gradient_compression", "dtlearn.bench"),
    forbids_torchs(
        "dtlearn.data_parallel",
        "dtlearn.sharing",
        "torch.distributed.algorithms",
        "torch.distributed.optim",
        "torch.nn.parallel",
    ),
]


def groups_of(case: Case) -> list[list[int]]:
    """The ranks of each group: all are one, or, with "pairs", every other one, so that no group is in one piece."""
    n = case.world_size
    return [list(range(first, n, 2)) for first in range(2)] if "pairs" in case.params else [list(range(n))]
