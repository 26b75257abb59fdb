# expect: DTL-RAISED
# says: k may be more than the gradient has elements

import torch
import torch.distributed as dist


def topk_feedback(gradient, residual, k, group=None):
    total = gradient + residual
    own = total.abs().topk(k).indices
    size = dist.get_world_size(group)
    places, sent = torch.empty(size * k, dtype=torch.int64), torch.empty(size * k)
    dist.all_gather_into_tensor(places, own, group=group)
    dist.all_gather_into_tensor(sent, total[own], group=group)
    mean = torch.zeros_like(total).index_add_(0, places, sent) / size
    return mean, total.index_fill(0, own, 0)
