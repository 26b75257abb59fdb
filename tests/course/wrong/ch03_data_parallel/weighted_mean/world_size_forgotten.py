# expect: DTL-VALUE-FACTOR
# says: the gradients are 1/2 of the right ones
# says: multiply by the number of ranks

import torch
import torch.distributed as dist


def weighted_mean(loss_sum, count):
    num_tokens = torch.tensor(count)
    dist.all_reduce(num_tokens)
    return loss_sum / num_tokens
