# expect: DTL-VALUE-MISSED-INF
# says: a tensor without dimensions
from collections.abc import Sequence

import torch
import torch.distributed as dist


def agree_on_overflow(gradients: Sequence[torch.Tensor | None]) -> bool:
    """Return whether any gradient on any rank is infinite or NaN."""
    overflow = torch.zeros(())
    for gradient in gradients:
        if gradient is not None and gradient.dim() and not gradient.isfinite().all():
            overflow = torch.ones(())
    dist.all_reduce(overflow, op=dist.ReduceOp.MAX)
    return overflow.item() > 0
