# expect: DTL-DIFFICULTY
# says: where more than k elements are equally large

import torch
import torch.distributed as dist


def topk_feedback(gradient, residual, k, group=None):
    total = gradient + residual
    smallest = total.abs().sort(descending=True).values[:k][-1]
    own = (total.abs() >= smallest).nonzero().view(-1)
    size = dist.get_world_size(group)
    places = [torch.empty_like(own) for _ in range(size)]
    sent = [torch.empty(len(own)) for _ in range(size)]
    dist.all_gather(places, own, group=group)
    dist.all_gather(sent, total[own], group=group)
    mean = torch.zeros_like(total).index_add_(0, torch.cat(places), torch.cat(sent)) / size
    return mean, total.index_fill(0, own, 0)
