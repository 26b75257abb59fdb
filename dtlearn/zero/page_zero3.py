"""ZeRO stage 3: a unit's weights are gathered when it computes, and freed after it.

forward pass    unshard, compute, reshard
backward pass   unshard, compute, reshard, reduce the gradients to shards
"""

import torch
import torch.distributed as dist
from torch import nn

from dtlearn.sharing.flat_collectives import all_gather_single, reduce_scatter_single

AnyGroup = dist.ProcessGroup | None  # None: all ranks


class ShardedUnit:
    """A module of which this rank keeps 1/N of the weights: `shard`, for the optimizer.

    Every weight is trained, is in one unit, and gets a gradient in each backward pass; all weights
    have one dtype and one device.

    **Communication** (n bytes of weights, padded; each rank sends (N-1)/N of it): once, a broadcast
    of n bytes; in a step an all-gather in forward, one in backward, and a reduce-scatter: 3n.
    **Memory**: n/N for the shard, and for its gradient; n while the unit computes; in backward n
    more for the gradients, which are there twice, without the weights, while they are reduced.
    """

    def __init__(self, module: nn.Module, weights: list[nn.Parameter], group: AnyGroup) -> None:
        if not all(weight.requires_grad for weight in weights):
            raise ValueError("expected weights that are all trained, but one is frozen")
        self.weights, self.group, self.num_ranks = weights, group, dist.get_world_size(group)
        sizes = [weight.numel() for weight in weights]
        self.padding = weights[0].new_zeros(-sum(sizes) % self.num_ranks)
        self.full = self.flatten([weight.detach() for weight in weights])  # (N k,)
        dist.broadcast(self.full, group=group, group_src=0)  # all ranks begin with the same weights
        self.nbytes = self.full.untyped_storage().nbytes()
        own = self.full.chunk(self.num_ranks)[dist.get_rank(group)]
        self.shard = nn.Parameter(own.clone())  # (k,)
        views = self.full.data.split([*sizes, len(self.padding)])  # .data: autograd sees no refill
        for weight, view in zip(weights, views, strict=False):
            weight.data = view.view_as(weight)
            weight.register_post_accumulate_grad_hook(self.reduce)
        self.reshard()
        module.register_forward_pre_hook(self.unshard)
        module.register_forward_hook(self.reshard)
        module.register_full_backward_pre_hook(self.unshard)

    def flatten(self, tensors: list[torch.Tensor]) -> torch.Tensor:
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
        """With the unit's last gradient: reshard, and add this rank's part of the mean."""
        gradients = [weight.grad for weight in self.weights if weight.grad is not None]
        if len(gradients) == len(self.weights):
            self.reshard()
            mean = torch.empty_like(self.shard.data)  # (k,)
            reduce_scatter_single(mean, self.flatten(gradients), group=self.group)
            mean.div_(self.num_ranks)
            self.shard.grad = mean if self.shard.grad is None else self.shard.grad + mean
            for weight in self.weights:
                weight.grad = None


def shard_model(model: nn.Module, units: list[nn.Module], *, group: AnyGroup) -> list[ShardedUnit]:
    """Shard these modules, each by itself, and the model, with the weights that are left to it."""
    inside = {weight for unit in units for weight in unit.parameters()}
    left = [weight for weight in model.parameters() if weight not in inside]
    parts = [(model, left), *((unit, list(unit.parameters())) for unit in units)]
    return [ShardedUnit(module, weights, group) for module, weights in parts if weights]
