# expect: DTL-MUTATED
# says: changed what it was given: residual

import torch
import torch.distributed as dist


def topk_feedback(gradient, residual, k, group=None):
    residual += gradient
    k = min(k, len(residual))
    own = residual.abs().topk(k).indices
    size = dist.get_world_size(group)
    places, sent = torch.empty(size * k, dtype=torch.int64), torch.empty(size * k)
    dist.all_gather_into_tensor(places, own, group=group)
    dist.all_gather_into_tensor(sent, residual[own], group=group)
    residual[own] = 0
    return torch.zeros_like(residual).index_add_(0, places, sent) / size, residual
