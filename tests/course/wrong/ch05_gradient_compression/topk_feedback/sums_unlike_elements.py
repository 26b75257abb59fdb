# expect: DTL-DIFFICULTY
# says: each rank picks and sends its own k elements

import torch
import torch.distributed as dist


def topk_feedback(gradient, residual, k, group=None):
    total = gradient + residual
    own = total.abs().topk(min(k, len(total))).indices
    values = total[own]
    dist.all_reduce(values, group=group)  # adds up the largest of all ranks, the second largest, ...
    mean = torch.zeros_like(total)
    mean[own] = values / dist.get_world_size(group)
    return mean, total.index_fill(0, own, 0)
