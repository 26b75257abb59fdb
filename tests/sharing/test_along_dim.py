"""Collectives along any dim, of tensors that are not contiguous too; the caller's tensor stays as it is."""

import pytest
import torch
import torch.distributed as dist

import dtlearn
from dtlearn.sharing.along_dim import all_gather, all_reduce, all_to_all, reduce_scatter
from tests.devices import run_ranks
from tests.sharing.groups import calls_of, in_groups

NBYTES = 144 * 8
DIMS = (0, 1, -1)
BOTH_DIMS = [(split_dim, concat_dim) for split_dim in DIMS for concat_dim in DIMS]


def of_rank(rank):
    values = torch.arange(144, dtype=torch.float64, device=dtlearn.device())
    return values.view(12, 12).t().mul(rank + 1)  # not contiguous


def all_dims():
    def case(group):
        x = of_rank(dist.get_rank())
        results = [all_reduce(x, group=group)]
        for dim in DIMS:
            results += [all_gather(x, dim, group=group), reduce_scatter(x, dim, group=group)]
        results += [all_to_all(x, *dims, group=group) for dims in BOTH_DIMS]
        assert torch.equal(x, of_rank(dist.get_rank())) and all(result.is_contiguous() for result in results)
        return results

    return in_groups(case)


def refused():
    with pytest.raises(ValueError, match="6 elements of dim 1 cannot be divided among 4 ranks"):
        all_to_all(torch.zeros(4, 6), -1, 0)


@pytest.fixture(scope="module")
def run():
    return run_ranks(lambda: (refused(), all_dims())[1], 4, device="cpu", record=True)


def test_along_every_dim_on_another_device(other_device):
    test_along_every_dim(run_ranks(all_dims, 2, device=other_device))


def test_along_every_dim(run):
    for rank, results in enumerate(run):
        for size, (total, *others) in results.items():
            inputs = [of_rank(other) for other in range(size)]
            assert torch.equal(total, sum(inputs))
            for dim, gathered, part in zip(DIMS, others[:6:2], others[1:6:2], strict=True):
                assert torch.equal(gathered, torch.cat(inputs, dim))
                assert torch.equal(part, total.chunk(size, dim)[rank])
            for (split_dim, concat_dim), received in zip(BOTH_DIMS, others[6:], strict=True):
                parts = [x.chunk(size, split_dim)[rank] for x in inputs]  # that each rank has for this one
                assert torch.equal(received, torch.cat(parts, concat_dim))


def test_calls_and_bytes(run):
    for size in (2, 3, 4):
        pair = [("all_gather_into_tensor", NBYTES), ("reduce_scatter_tensor", NBYTES)]
        exchanges = [("all_to_all_single", NBYTES)] * len(BOTH_DIMS)
        assert calls_of(run.record, size) == [("all_reduce", NBYTES)] + pair * len(DIMS) + exchanges
