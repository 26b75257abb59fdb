# expect: DTL-COLL-SHAPE
# says: each rank sends k elements, also where they are 0

import torch
import torch.distributed as dist


def topk_feedback(gradient, residual, k, group=None):
    total = gradient + residual
    own = total.abs().topk(min(k, len(total))).indices
    own = own[total[own] != 0]
    size = dist.get_world_size(group)
    places = [torch.empty_like(own) for _ in range(size)]
    sent = [torch.empty(len(own)) for _ in range(size)]
    dist.all_gather(places, own, group=group)
    dist.all_gather(sent, total[own], group=group)
    mean = torch.zeros_like(total).index_add_(0, torch.cat(places), torch.cat(sent)) / size
    return mean, total.index_fill(0, own, 0)
