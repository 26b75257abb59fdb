# expect: DTL-VALUE-OWN-NORM
# says: by a norm of its own


import torch
import torch.distributed as dist


def clip_over_ranks(shards, replicated, scale, max_norm):
    gradients = [p.grad for p in (*shards, *replicated) if p.grad is not None]
    for gradient in gradients:
        gradient /= scale
    flags = torch.tensor(float(all(gradient.isfinite().all() for gradient in gradients)))
    dist.all_reduce(flags, op=dist.ReduceOp.MIN)
    if not flags:
        return None
    return torch.nn.utils.clip_grad_norm_([*shards, *replicated], max_norm).item()
