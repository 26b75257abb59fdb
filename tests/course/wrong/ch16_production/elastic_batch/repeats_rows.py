# expect: DTL-DIFFICULTY
# says: where the ranks do not divide the batch, the first ones have a row more

import torch.distributed as dist


def elastic_batch(parameters, loss_of, saved, max_accumulate, rule):
    """As a DistributedSampler: the first rows are repeated, until every rank has as many."""
    exponent = {"linear": 1.0, "sqrt": 0.5}.get(rule)
    if exponent is None:
        raise ValueError(rule)
    n, micro = dist.get_world_size(), saved["micro_batch"]
    tuned = saved["ranks"] * micro * saved["accumulate"]
    batch = min(tuned, n * micro * max_accumulate)
    padded = [k % batch for k in range(-(-batch // n) * n)]
    own = len(padded) // n
    rows = padded[dist.get_rank() * own :][:own]
    for p in parameters:
        p.grad = None
    for start in range(0, own, micro):
        part = rows[start : start + micro]
        (loss_of(part) * (len(part) / own)).backward()
    lr = saved["lr"] * (batch / tuned) ** exponent
    for p in parameters:
        dist.all_reduce(p.grad)
        p.data -= lr * p.grad / n
    return lr
