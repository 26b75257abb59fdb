"""Three collectives along any dim, of tensors that are not contiguous too; the caller's tensor stays as it is."""

import torch
import torch.distributed as dist

from dtlearn.runtime.run import run_ranks
from dtlearn.sharing.along_dim import all_gather, all_reduce, reduce_scatter
from tests.tensor_parallel.groups import in_groups


def of_rank(rank):
    return torch.arange(144, dtype=torch.float64).view(12, 12).t().mul(rank + 1)  # not contiguous


def all_dims():
    def case(group):
        x = of_rank(dist.get_rank())
        results = [all_reduce(x, group=group)]
        for dim in (0, 1, -1):
            results += [all_gather(x, dim, group=group), reduce_scatter(x, dim, group=group)]
        assert torch.equal(x, of_rank(dist.get_rank())) and all(result.is_contiguous() for result in results)
        return results

    return in_groups(case)


def test_along_every_dim():
    run = run_ranks(all_dims, 4, device="cpu")
    for rank, results in enumerate(run):
        for size, (total, *pairs) in results.items():
            inputs = [of_rank(other) for other in range(size)]
            assert torch.equal(total, sum(inputs))
            for dim, gathered, part in zip((0, 1, 1), pairs[::2], pairs[1::2], strict=True):
                assert torch.equal(gathered, torch.cat(inputs, dim))
                assert torch.equal(part, total.chunk(size, dim)[rank])
