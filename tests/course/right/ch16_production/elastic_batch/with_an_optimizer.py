import torch
import torch.distributed as dist


def elastic_batch(parameters, loss_of, saved, max_accumulate, rule):
    """Micro-batches of nearly equal sizes, a mean over the ranks that is weighed by the loss, and torch's SGD."""
    exponents = {"linear": 1.0, "sqrt": 0.5}
    if rule not in exponents:
        raise ValueError(f"{rule!r} is none of {sorted(exponents)}")
    n, micro = dist.get_world_size(), saved["micro_batch"]
    tuned = saved["ranks"] * micro * saved["accumulate"]
    batch = min(tuned, n * micro * max_accumulate)
    lr = saved["lr"] * (batch / tuned) ** exponents[rule]
    optimizer = torch.optim.SGD(parameters, lr=lr)
    optimizer.zero_grad()
    rows = torch.arange(batch).tensor_split(n)[dist.get_rank()]
    for part in rows.tensor_split(-(-len(rows) // micro)) if len(rows) else ():
        (loss_of(part.tolist()) * (n * len(part) / batch)).backward()
    for p in parameters:
        p.grad = torch.zeros_like(p) if p.grad is None else p.grad
        dist.all_reduce(p.grad)
        p.grad /= n
    optimizer.step()
    return lr
