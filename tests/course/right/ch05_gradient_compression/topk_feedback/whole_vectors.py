import torch
import torch.distributed as dist


def topk_feedback(gradient, residual, k, group=None):
    """Right, without a tier: the elements that are not sent travel as zeros."""
    total = residual.add(gradient)
    kept = total.clone()
    for _ in range(min(k, len(total))):
        left = torch.where(kept == 0, -1, kept.abs())
        kept[left.argmax()] = 0
    sent = total - kept
    dist.all_reduce(sent, group=group)
    return sent / dist.get_world_size(group), kept
