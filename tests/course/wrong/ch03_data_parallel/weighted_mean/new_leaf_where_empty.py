# expect: DTL-MISTAKE
# says: the loss of a rank without tokens has no graph

import torch
import torch.distributed as dist


def weighted_mean(loss_sum, count):
    total = torch.tensor(count)
    dist.all_reduce(total)
    if count == 0:
        return torch.zeros((), requires_grad=True)
    return loss_sum * dist.get_world_size() / total
