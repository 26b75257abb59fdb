# expect: DTL-RAISED
# says: a rank without rows has no gradient

import torch
import torch.distributed as dist


def elastic_batch(parameters, loss_of, saved, max_accumulate, rule):
    """The gradients of a rank without rows are None."""
    if rule not in ("linear", "sqrt"):
        raise ValueError(f"expected linear or sqrt, got {rule}")
    n, micro = dist.get_world_size(), saved["micro_batch"]
    tuned = saved["ranks"] * micro * saved["accumulate"]
    batch = min(tuned, n * micro * max_accumulate)
    optimizer = torch.optim.SGD(parameters, lr=saved["lr"] * (batch / tuned) ** (1 if rule == "linear" else 0.5))
    optimizer.zero_grad()
    rows = torch.arange(batch).tensor_split(n)[dist.get_rank()].tolist()
    for start in range(0, len(rows), micro):
        part = rows[start : start + micro]
        (loss_of(part) * len(part) / batch).backward()
    for p in parameters:
        dist.all_reduce(p.grad)
    optimizer.step()
    return optimizer.param_groups[0]["lr"]
