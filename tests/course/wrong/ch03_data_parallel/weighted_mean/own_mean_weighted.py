# expect: DTL-VALUE-NAN
# says: has no tokens, and returned NaN: it divided by its own count

import torch
import torch.distributed as dist


def weighted_mean(loss_sum, count):
    num_tokens = torch.tensor(count)
    dist.all_reduce(num_tokens)
    mean = loss_sum / count  # 0 / 0 where there is no token
    return mean * count * dist.get_world_size() / num_tokens
