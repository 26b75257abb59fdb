"""The groups of a mesh on real ranks: those of the layout, and sums over them; another order of calls is found."""

import pytest
import torch
import torch.distributed as dist

import dtlearn
from dtlearn.hybrid_parallel import MeshLayout, make_groups
from dtlearn.runtime.errors import RankError
from tests.devices import run_ranks

LAYOUT = MeshLayout(tp=2, dp=2)
KINDS = {  # by attribute: along which axes
    "tp": ("tp",),
    "pp": ("pp",),
    "cp": ("cp",),
    "ep": ("ep",),
    "dp": ("dp", "ep", "cp"),
    "expert_dp": ("dp", "cp"),
    "tokens": ("tp", "dp", "ep", "cp"),
}


def sums(layout):
    """The sum of the ranks' numbers over each of this rank's groups."""
    groups, found = make_groups(layout), {}
    for axis in KINDS:
        number = torch.tensor([float(dist.get_rank())], device=dtlearn.device())
        dist.all_reduce(number, group=getattr(groups, axis))
        found[axis] = number.item()
    return found, groups.coordinates


def test_each_rank_sums_over_its_own(device):
    for rank, (found, coordinates) in enumerate(run_ranks(sums, 4, LAYOUT, device=device)):
        assert found == {kind: sum(LAYOUT.group(rank, *axes)) for kind, axes in KINDS.items()}
        assert coordinates == LAYOUT.coordinates(rank)


@pytest.mark.parametrize(
    "layout", [MeshLayout(cp=2, ep=2), MeshLayout(ep=2, dp=2, order=("dp", "tp", "cp", "pp", "ep"))]
)
def test_several_axes_make_groups_too(layout):
    for rank, (found, _) in enumerate(run_ranks(sums, 4, layout, device="cpu")):
        assert found == {kind: sum(layout.group(rank, *axes)) for kind, axes in KINDS.items()}


def shared():
    groups = make_groups(MeshLayout(cp=2))
    return groups.cp is groups.dp is groups.expert_dp is groups.tokens, groups.tp is groups.pp is groups.ep


def test_kinds_with_the_same_ranks_share_a_group():
    assert run_ranks(shared, 2, device="cpu")[0] == (True, True)


def test_another_number_of_ranks_is_refused():
    with pytest.raises(RankError, match="the axes make tp 2 \\* dp 2 = 4 ranks, and there are 2"):
        run_ranks(sums, 2, LAYOUT, device="cpu")
