"""The groups of a mesh on real ranks: those of the layout, and sums over them; another order of calls is found."""

import pytest
import torch
import torch.distributed as dist

import dtlearn
from dtlearn.hybrid_parallel import MeshLayout, make_groups
from dtlearn.runtime.errors import RankError
from tests.devices import run_ranks

LAYOUT = MeshLayout(tp=2, dp=2)


def sums(layout):
    """The sum of the ranks' numbers over each of this rank's groups."""
    groups, found = make_groups(layout), {}
    for axis in ("tp", "pp", "dp"):
        number = torch.tensor([float(dist.get_rank())], device=dtlearn.device())
        dist.all_reduce(number, group=getattr(groups, axis))
        found[axis] = number.item()
    return found, groups.coordinates


def test_each_rank_sums_over_its_own(device):
    for rank, (found, coordinates) in enumerate(run_ranks(sums, 4, LAYOUT, device=device)):
        assert found == {axis: sum(LAYOUT.group(rank, axis)) for axis in ("tp", "pp", "dp")}
        assert coordinates == LAYOUT.coordinates(rank)


def test_another_number_of_ranks_is_refused():
    with pytest.raises(RankError, match="the axes make tp 2 \\* dp 2 = 4 ranks, and there are 2"):
        run_ranks(sums, 2, LAYOUT, device="cpu")
