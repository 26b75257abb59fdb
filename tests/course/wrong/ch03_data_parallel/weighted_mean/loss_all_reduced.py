# expect: DTL-VALUE-REDUCED-LOSS
# says: the loss itself was all-reduced
# says: after DDP's average it is 1/2

import torch
import torch.distributed as dist


def weighted_mean(loss_sum, count):
    num_tokens = torch.tensor(count)
    dist.all_reduce(num_tokens)
    total = loss_sum * 1.0
    dist.all_reduce(total)
    return total / num_tokens
