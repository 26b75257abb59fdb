# expect: DTL-VALUE-FLOOR
# says: 11 tokens on 2 ranks are taken for 5 each

import torch
import torch.distributed as dist


def weighted_mean(loss_sum, count):
    num_tokens = torch.tensor(count)
    dist.all_reduce(num_tokens)
    return loss_sum / (num_tokens // dist.get_world_size())
