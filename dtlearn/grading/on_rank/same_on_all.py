"""Asked on the ranks, in the middle of a check's `on_rank`: do all hold the same?"""

from typing import Any

import torch
import torch.distributed as dist


def same_on_all_ranks(value: Any) -> bool:
    """Whether the elements of a tensor add up to the same on all ranks. What is no tensor is each rank's own.

    Every rank has to call it. The call is the check's, and does not count as the answer's.
    """
    total = float(value.double().sum()) if isinstance(value, torch.Tensor) else float(dist.get_rank())
    both = torch.tensor([total, -total], dtype=torch.float64)
    dist.all_reduce(both, op=dist.ReduceOp.MAX)
    return bool(both[0] == -both[1])
