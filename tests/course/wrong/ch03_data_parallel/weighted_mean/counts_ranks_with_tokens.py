# expect: DTL-VALUE-USERS
# says: so many ranks have tokens, but DDP divides by all

import torch
import torch.distributed as dist


def weighted_mean(loss_sum: torch.Tensor, count: int) -> torch.Tensor:
    """The loss for backward() on this rank; shape ()."""
    num_tokens = torch.tensor([count, int(count > 0)])
    dist.all_reduce(num_tokens)
    num_tokens, users = num_tokens
    return loss_sum * users / num_tokens
