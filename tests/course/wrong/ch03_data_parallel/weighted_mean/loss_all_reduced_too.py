# expect: DTL-VALUE
# says: the gradients are right, but the average of the returned losses is

import torch
import torch.distributed as dist


def weighted_mean(loss_sum, count):
    num_tokens = torch.tensor(count)
    dist.all_reduce(num_tokens)
    total = loss_sum * 1.0
    dist.all_reduce(total)
    return total * dist.get_world_size() / num_tokens
