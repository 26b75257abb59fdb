# expect: DTL-VALUE-COUNT
# says: divided by this rank's own number of tokens and by that of all

import torch
import torch.distributed as dist


def weighted_mean(loss_sum: torch.Tensor, count: int) -> torch.Tensor:
    """The loss for backward() on this rank; shape ()."""
    num_tokens = torch.tensor(count)
    dist.all_reduce(num_tokens)
    return loss_sum / max(count, 1) * dist.get_world_size() / num_tokens
