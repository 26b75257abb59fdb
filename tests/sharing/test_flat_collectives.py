"""The collectives of flat tensors under both of their names."""

import warnings

import torch
import torch.distributed as dist

import dtlearn
from dtlearn.sharing.flat_collectives import all_gather_single, reduce_scatter_single
from tests.devices import run_ranks


def both_ways():
    rank, num_ranks, found = dist.get_rank(), dist.get_world_size(), []
    for async_op in (False, True):
        here = {"device": dtlearn.device()}
        full, shard = torch.zeros(2 * num_ranks, **here), torch.empty(2, **here)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            work = all_gather_single(full, torch.full((2,), rank + 1.0, **here), async_op=async_op)
            if work:
                work.wait()
            work = reduce_scatter_single(shard, full * (rank + 1), async_op=async_op)
            if work:
                work.wait()
        found.append((full.tolist(), shard.tolist()))
    return found


def with_the_old_names():
    for name in ("all_gather_single", "reduce_scatter_single"):
        if hasattr(dist, name):
            delattr(dist, name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        full, shard = torch.zeros(2), torch.empty(1)
        all_gather_single(full, torch.ones(1))
        reduce_scatter_single(shard, full)
    return full.tolist(), shard.tolist()


def test_they_gather_and_reduce(device):
    result = run_ranks(both_ways, 2, device=device, record=True)
    for rank, found in enumerate(result):
        assert found == [([1, 1, 2, 2], [3.0 * (rank + 1)] * 2)] * 2
    counts = {(rank, op): 2 for rank in range(2) for op in ("all_gather_into_tensor", "reduce_scatter_tensor")}
    assert result.record.counts() == counts  # under one name in records


def test_older_versions_of_torch_have_other_names():
    for found in run_ranks(with_the_old_names, 2, device="cpu"):
        assert found == ([1, 1], [2])
