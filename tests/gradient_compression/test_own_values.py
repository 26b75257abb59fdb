"""Ranks that have the same values are told from ranks that do not, also where sums are equal."""

import torch
import torch.distributed as dist

from dtlearn.gradient_compression.own_values import all_alike, norms_of_ranks, squared_norm
from dtlearn.runtime.device import device as here
from tests.devices import run_ranks


def compare():
    rank = dist.get_rank()
    values = torch.arange(4.0, device=here())
    moved = values.clone()
    moved[0] += rank * 1e-3  # the sum of both elements stays
    moved[1] -= rank * 1e-3
    nan = torch.full_like(values, float("nan"))
    own = dist.new_group([0]), dist.new_group([1])
    return (
        all_alike(norms_of_ranks([values, values[:0]])),
        all_alike(norms_of_ranks([values, moved])),
        all_alike(norms_of_ranks([nan])),
        all_alike(norms_of_ranks([values], group=own[rank])),
        norms_of_ranks([values, values[:2]]).tolist() + squared_norm([values]).tolist(),
    )


def test_same_and_different_values(device):
    for found in run_ranks(compare, 2, device=device):
        assert found == (True, False, False, False, [15.0, 15.0, 14.0])
