# expect: DTL-VALUE-NO-GRAPH
# says: the loss of rank 1 has no graph

import torch
import torch.distributed as dist


def weighted_mean(loss_sum: torch.Tensor, count: int) -> torch.Tensor:
    """The loss for backward() on this rank; shape ()."""
    empty = count == 0
    num_tokens = torch.tensor(count)
    dist.all_reduce(num_tokens)
    if empty:
        return torch.tensor(0.0)
    return loss_sum * dist.get_world_size() / num_tokens
