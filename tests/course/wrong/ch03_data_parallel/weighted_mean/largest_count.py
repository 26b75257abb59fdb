# expect: DTL-VALUE-COUNT-MAX
# says: divided by the largest count, 8

import torch
import torch.distributed as dist


def weighted_mean(loss_sum, count):
    num_tokens = torch.tensor(count)
    dist.all_reduce(num_tokens, op=dist.ReduceOp.MAX)
    return loss_sum / num_tokens
