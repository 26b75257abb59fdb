# expect: DTL-VALUE-SHAPE
# says: the result['rows'] should have

import torch.distributed as dist


def elastic_batch(parameters, loss_of, saved, max_accumulate, rule):
    """Plans only, and returns the plan."""
    if rule not in ("linear", "sqrt"):
        raise ValueError(rule)
    n = dist.get_world_size()
    tuned = saved["ranks"] * saved["micro_batch"] * saved["accumulate"]
    batch = min(tuned, n * saved["micro_batch"] * max_accumulate)
    return saved["lr"] * (batch / tuned) ** (1 if rule == "linear" else 0.5)
