"""ZeRO stage 3: a unit's weights are gathered when it computes, and freed after it.

forward pass    unshard, compute, reshard
backward pass   unshard, compute, reshard, reduce the gradients to shards
"""

from collections.abc import Iterable, Sequence

import torch
import torch.distributed as dist
from torch import nn

from dtlearn.sharing.flat_collectives import all_gather_single, reduce_scatter_single


class ShardedUnit:
    """A module of which this rank keeps 1/N of the weights: `shard`, for the optimizer.

    Every weight is trained, is in one unit only, and gets a gradient in each backward pass. All
    weights have one dtype and are on one device.

    **Communication** (n bytes of weights, padded; each rank sends (N-1)/N of it): once, a broadcast
    of n bytes; in a step an all-gather in forward, one in backward, and a reduce-scatter: 3n.
    **Memory**: n/N for the shard, and for its gradient. While the unit computes, n for its weights;
    in backward n more for their gradients, which are there twice while they are reduced.
    """

    def __init__(self, module: nn.Module, weights: Sequence[nn.Parameter], group: dist.ProcessGroup | None) -> None:
        if not all(weight.requires_grad for weight in weights):
            raise ValueError("expected weights that are all trained, but one is frozen")
        self.weights, self.group, self.num_ranks = weights, group, dist.get_world_size(group)
        sizes = [weight.numel() for weight in weights]
        self.padding = weights[0].new_zeros(-sum(sizes) % self.num_ranks)
        self.full = self.flatten(weight.detach() for weight in weights)  # (N k,)
        dist.broadcast(self.full, group=group, group_src=0)  # all ranks begin with the same weights
        self.nbytes = self.full.untyped_storage().nbytes()
        own = self.full.chunk(self.num_ranks)[dist.get_rank(group)]
        self.shard = nn.Parameter(own.clone())  # (k,)
        views = self.full.data.split([*sizes, len(self.padding)])  # .data: autograd may not see
        for weight, view in zip(weights, views, strict=False):  # that `full` is filled again
            weight.data = view.view_as(weight)
        self.reshard()
        module.register_forward_pre_hook(self.unshard)
        module.register_forward_hook(self.reshard)
        module.register_full_backward_pre_hook(self.unshard)
        for weight in weights:
            weight.register_post_accumulate_grad_hook(self.reduce)

    def flatten(self, tensors: Iterable[torch.Tensor]) -> torch.Tensor:
        """All in one vector, (N k,), with zeros at its end."""
        return torch.cat([*(tensor.reshape(-1) for tensor in tensors), self.padding])

    def unshard(self, *_: object) -> None:
        """Give `full` its memory, and fill it with the shards of all ranks."""
        self.full.untyped_storage().resize_(self.nbytes)
        all_gather_single(self.full, self.shard.detach(), group=self.group)

    def reshard(self, *_: object) -> None:
        """Free `full`. What autograd saved of it has its values again after the next `unshard`."""
        self.full.untyped_storage().resize_(0)

    def reduce(self, *_: object) -> None:
        """With the last gradient of the unit: reshard, and add this rank's part of the mean."""
        if all(weight.grad is not None for weight in self.weights):
            self.reshard()
            mean = torch.empty_like(self.shard)  # (k,)
            gradient = self.flatten(weight.grad for weight in self.weights)  # (N k,)
            reduce_scatter_single(mean, gradient, group=self.group)
            mean.div_(self.num_ranks)
            self.shard.grad = mean if self.shard.grad is None else self.shard.grad + mean
            for weight in self.weights:
                weight.grad = None


def shard_model(
    model: nn.Module, modules: Sequence[nn.Module], *, group: dist.ProcessGroup | None = None
) -> list[ShardedUnit]:
    """Make a unit of each of these modules, and one of the model, with the weights that are left."""
    inside = {weight for module in modules for weight in module.parameters()}
    left = [weight for weight in model.parameters() if weight not in inside]
    of_units = [(model, left), *((module, list(module.parameters())) for module in modules)]
    return [ShardedUnit(module, weights, group) for module, weights in of_units if weights]
