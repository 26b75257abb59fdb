# expect: DTL-VALUE-COUNT
# says: every rank divides by rank 0's number of tokens, 3

import torch
import torch.distributed as dist


def weighted_mean(loss_sum: torch.Tensor, count: int) -> torch.Tensor:
    """The loss for backward() on this rank; shape ()."""
    num_tokens = torch.tensor(count)
    dist.broadcast(num_tokens, src=0)
    return loss_sum * dist.get_world_size() / num_tokens
