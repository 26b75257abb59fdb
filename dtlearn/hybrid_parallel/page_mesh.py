"""A mesh of ranks on a page: coordinates, groups, and what a step of a GPT reduces over which."""

from math import prod

import torch
import torch.distributed as dist
from torch import nn

from dtlearn.sharing.clipping import clip_grad_norm_

MeshSizes = dict[str, int]  # ranks along each axis, innermost first: {"tp": 2, "pp": 2, "dp": 2}


def strides(sizes: MeshSizes) -> MeshSizes:
    """How far apart neighbours along each axis are: {"tp": 1, "pp": 2, "dp": 4}."""
    names = list(sizes)
    return {axis: prod(sizes[inner] for inner in names[: names.index(axis)]) for axis in names}


def coordinates(rank: int, sizes: MeshSizes) -> MeshSizes:
    """Rank 6 of that mesh is {"tp": 0, "pp": 1, "dp": 1}."""
    return {axis: rank // stride % sizes[axis] for axis, stride in strides(sizes).items()}


def make_groups(sizes: MeshSizes) -> dict[str, dist.ProcessGroup]:
    """This rank's group along each axis. Every process makes every group, all in one order."""
    mine = {}
    for axis, stride in strides(sizes).items():
        for first in range(prod(sizes.values())):
            if coordinates(first, sizes)[axis] == 0:
                ranks = [first + stride * place for place in range(sizes[axis])]
                group = dist.new_group(ranks)
                if dist.get_rank() in ranks:
                    mine[axis] = group
    return mine


def own_rows(batch: torch.Tensor, sizes: MeshSizes) -> torch.Tensor:
    """A loader knows dp only: ranks along tp and pp work on the same rows. (B, T) -> (B/dp, T)."""
    return batch.chunk(sizes["dp"])[coordinates(dist.get_rank(), sizes)["dp"]]


def count_tokens(targets: torch.Tensor, groups: dict[str, dist.ProcessGroup]) -> torch.Tensor:
    """Of all replicas, before the first micro-batch: each divides its sum of losses by this. ()"""
    total = targets.ne(-100).sum()
    dist.all_reduce(total, group=groups["dp"])
    return total


@torch.no_grad()
def finish_step(
    parameters: dict[str, nn.Parameter],
    groups: dict[str, dist.ProcessGroup],
    optimizer: torch.optim.Optimizer,
    *,
    alike: set[str],
    partial: set[str],
    elsewhere: set[str],
    max_norm: float,
) -> torch.Tensor:
    """What is left to do after the last backward pass; returns the norm of the whole gradient, ().

    **Communication**: all-reduces of `partial` along tp, of all gradients along dp, of the norm.

    Args:
        alike: names of what all tp ranks have whole: norms, positions, biases after a sum.
        partial: those of them that met this rank's tokens only, under sequence parallelism.
        elsewhere: what another stage counts: the second copy of a tied embedding.
    """
    for name in sorted(partial):
        dist.all_reduce(parameters[name].grad, group=groups["tp"])
    for parameter in parameters.values():
        dist.all_reduce(parameter.grad, group=groups["dp"])  # sums: the losses were divided
    not_here = elsewhere | (alike if dist.get_rank(groups["tp"]) > 0 else set())
    counted = [parameter for name, parameter in parameters.items() if name not in not_here]
    norm = clip_grad_norm_(  # along dp gradients are alike: their square is not added up
        parameters.values(), max_norm, counted=counted, groups=[groups["tp"], groups["pp"]]
    )
    optimizer.step()
    return norm
