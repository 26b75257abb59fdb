import torch
import torch.distributed as dist


def clip_over_ranks(shards, replicated, scale, max_norm):
    """Every rank counts 1 / N of what is replicated; torch does the clipping."""
    lengths = [
        torch.nn.utils.get_total_norm([p.grad for p in own if p.grad is not None]) for own in (shards, replicated)
    ]
    square = (lengths[0] ** 2 + lengths[1] ** 2 / dist.get_world_size()) / scale**2
    everyone = [torch.zeros(()) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, square.reshape(()))
    norm = torch.stack(everyone).sum().sqrt()
    if not norm.isfinite():
        return None
    for parameter in [*shards, *replicated]:
        if parameter.grad is not None:
            parameter.grad = parameter.grad / scale
    torch.nn.utils.clip_grads_with_norm_([*shards, *replicated], max_norm, norm)
    return norm.item()
