# expect: DTL-VALUE-FACTOR
# says: the gradients are 2 times the right ones
# says: the count is an average

import torch
import torch.distributed as dist


def weighted_mean(loss_sum, count):
    num_tokens = torch.tensor(count)
    dist.all_reduce(num_tokens)
    num_tokens = num_tokens / dist.get_world_size()
    return loss_sum * dist.get_world_size() / num_tokens
