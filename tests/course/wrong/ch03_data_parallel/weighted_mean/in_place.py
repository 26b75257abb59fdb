# expect: DTL-MUTATED
# says: changed loss_sum, which has to stay as it is

import torch
import torch.distributed as dist


def weighted_mean(loss_sum: torch.Tensor, count: int) -> torch.Tensor:
    """The loss for backward() on this rank; shape ()."""
    num_tokens = torch.tensor(count)
    dist.all_reduce(num_tokens)
    loss_sum *= dist.get_world_size()
    loss_sum /= num_tokens
    return loss_sum
