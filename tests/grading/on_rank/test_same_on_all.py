"""Whether all ranks hold the same."""

import torch
import torch.distributed as dist

from dtlearn.grading.on_rank.same_on_all import same_on_all_ranks
from dtlearn.runtime.run import run_ranks


def asked():
    rank = dist.get_rank()
    return [
        same_on_all_ranks(torch.tensor([1.0, 2.0])),
        same_on_all_ranks(torch.tensor([1.0, 2.0 + (rank == 1)])),
        same_on_all_ranks(torch.tensor(3.0, dtype=torch.bfloat16)),
        same_on_all_ranks("no tensor"),
    ]


def test_equal_tensors_are_the_same_and_what_is_no_tensor_is_not():
    for size in (2, 3):
        assert list(run_ranks(asked, size)) == [[True, False, True, False]] * size
