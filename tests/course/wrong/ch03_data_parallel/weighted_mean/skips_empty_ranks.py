# expect: DTL-COLL-SKIP
# says: rank 0 waits in all_reduce number 1 of their group; rank 1 ended

import torch
import torch.distributed as dist


def weighted_mean(loss_sum, count):
    if count == 0:
        return loss_sum
    num_tokens = torch.tensor(count)
    dist.all_reduce(num_tokens)
    return loss_sum * dist.get_world_size() / num_tokens
